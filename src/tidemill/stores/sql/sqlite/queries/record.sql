-- record: appends audit records.
-- items: number int8, at timestamptz, tenant text, who text, action text, subject text, before text, after text, hash text
insert into tidemill_audit(number, at, tenant, who, action, subject, before, after, hash)
values (:number, :at, :tenant, :who, :action, :subject, :before, :after, :hash)
