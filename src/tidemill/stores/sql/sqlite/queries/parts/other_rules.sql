-- other_rules: the rules of policies that take precedence.
-- takes: exclude text
with others as materialized (select value as rule from json_each(:exclude)) -- when exclude
