-- expand: grants, roles by tenant and the environment of a key, as JSON; null for a key that its role alone describes.
-- serves: 6

alter table tidemill.keys add column grant_json text;
