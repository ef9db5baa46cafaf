-- lowest compatible version: 13
-- A query has one record; of several the oldest stays.

DELETE FROM query_records AS later USING query_records AS earlier
    WHERE later.proxy_query_id = earlier.proxy_query_id AND later.id > earlier.id;
DROP INDEX query_records_proxy_query_id;
CREATE UNIQUE INDEX query_records_proxy_query_id ON query_records (proxy_query_id);
