-- archive_places: the places with catalogued files. Index: archive_files_ended.
-- gives: place text
select distinct place from tidemill_archive_files order by place
