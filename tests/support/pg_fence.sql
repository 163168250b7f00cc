-- pg_fence.sql: a judge of the PostgreSQL store's locks (src/provider/postgres/README.md, "One truth, one fence").
--
-- Loaded into a database before stores are opened there: every schema that is made from then on raises "fence: …" where
--   - history is inserted for a leased instance by a transaction that does not hold the instance's row, or
--   - a lease ends (token or owner change) in a transaction that neither holds the row FOR UPDATE nor compares the token.
-- Rows that the transaction itself has made or written count as held.  It reads whole tables: for small ones.
CREATE EXTENSION IF NOT EXISTS pgrowlocks SCHEMA public;
CREATE SCHEMA durite_fence;

-- How this transaction holds a row of the table: the strongest of its locks; NULL: not at all.
CREATE FUNCTION durite_fence.held(of regclass, at tid) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN bool_or(m.mode IN ('For Update', 'Update')) THEN 'update'
                WHEN bool_or(m.mode IN ('For No Key Update', 'No Key Update')) THEN 'no key update'
                WHEN count(*) > 0 THEN 'key share' END
    FROM public.pgrowlocks(of::text) l, unnest(l.xids, l.modes) AS m(xid, mode)
    WHERE l.locked_row = at AND m.xid = pg_current_xact_id()::xid
$$;

CREATE FUNCTION durite_fence.history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instances regclass := format('%I.dur_instances', TG_TABLE_SCHEMA)::regclass;
    row record;
BEGIN
    EXECUTE format('SELECT ctid AS at, xmin AS made, token FROM %s WHERE instance_id = $1', instances)
        INTO row USING NEW.instance_id;
    IF row.token IS NOT NULL AND row.made <> pg_current_xact_id()::xid
       AND durite_fence.held(instances, row.at) IS NULL THEN
        RAISE EXCEPTION 'fence: history of % without its row, by %', NEW.instance_id, current_query();
    END IF;
    RETURN NEW;
END $$;

-- The trigger itself has locked the row as the update does, FOR NO KEY UPDATE; who holds the lease says its token.
CREATE FUNCTION durite_fence.lease() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instances regclass := format('%I.dur_instances', TG_TABLE_SCHEMA)::regclass;
    row record;
BEGIN
    IF OLD.token IS NULL OR (NEW.token IS NOT DISTINCT FROM OLD.token AND NEW.owner IS NOT DISTINCT FROM OLD.owner)
       OR (OLD.owner IS NULL AND OLD.expires_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint) THEN
        RETURN NEW;
    END IF;
    EXECUTE format('SELECT ctid AS at, xmin AS made FROM %s WHERE instance_id = $1', instances)
        INTO row USING OLD.instance_id;
    IF row.made <> pg_current_xact_id()::xid AND durite_fence.held(instances, row.at) IS DISTINCT FROM 'update'
       AND current_query() NOT LIKE '%i.token = t.token%' THEN
        RAISE EXCEPTION 'fence: the lease of % ends without FOR UPDATE, by %', OLD.instance_id, current_query();
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION durite_fence.judge(schema text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER fence BEFORE INSERT ON %I.dur_history FOR EACH ROW EXECUTE FUNCTION'
                   ' durite_fence.history()', schema);
    EXECUTE format('CREATE TRIGGER fence BEFORE UPDATE ON %I.dur_instances FOR EACH ROW EXECUTE FUNCTION'
                   ' durite_fence.lease()', schema);
END $$;

-- Every schema whose last table is made from here on.
CREATE FUNCTION durite_fence.watch() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM durite_fence.judge(schema_name) FROM pg_event_trigger_ddl_commands()
    WHERE object_type = 'table' AND object_identity LIKE '%.dur_lost';
END $$;
CREATE EVENT TRIGGER durite_fence ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
    EXECUTE FUNCTION durite_fence.watch();
