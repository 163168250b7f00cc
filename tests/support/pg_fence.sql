-- pg_fence.sql: a judge of the PostgreSQL store's locks (src/provider/postgres/README.md, "One truth, one fence").
--
-- Loaded into a database before stores are opened there: every schema that is made from then on raises "fence: …" where
--   - history is inserted for a leased instance by a transaction that does not hold the instance's row, or
--   - a lease ends (token or owner change) in a transaction that neither holds the row FOR UPDATE nor compares the token.
-- Rows that the transaction itself has made or written count as held.  It reads whole tables: for small ones.
CREATE EXTENSION IF NOT EXISTS pgrowlocks SCHEMA public;
CREATE SCHEMA durite_fence;

-- How this transaction holds an instance's row: the strongest of its locks; 'made': it has written it itself; NULL: not
-- at all.  A sender may commit another version of the row, to which the lock goes over, between the snapshot and the look
-- at the locks: what is held stays held, and is found by one of the next looks.
CREATE FUNCTION durite_fence.held(instances regclass, id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    mode text;
BEGIN
    FOR look IN 1 .. 50 LOOP
        EXECUTE format($sql$
            SELECT CASE WHEN bool_or(i.xmin = pg_current_xact_id()::xid) THEN 'made'
                        WHEN bool_or(m.mode IN ('For Update', 'Update')) THEN 'update'
                        WHEN bool_or(m.mode IN ('For No Key Update', 'No Key Update')) THEN 'no key update'
                        WHEN count(m.mode) > 0 THEN 'key share' END
            FROM %s i LEFT JOIN (
                SELECT l.locked_row, m.mode FROM public.pgrowlocks(%L) l, unnest(l.xids, l.modes) AS m(xid, mode)
                WHERE m.xid = pg_current_xact_id()::xid) m ON m.locked_row = i.ctid
            WHERE i.instance_id = $1 $sql$, instances, instances) INTO mode USING id;
        EXIT WHEN mode IS NOT NULL;
    END LOOP;
    RETURN mode;
END $$;

CREATE FUNCTION durite_fence.history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instances regclass := format('%I.dur_instances', TG_TABLE_SCHEMA)::regclass;
    lease text;
BEGIN
    EXECUTE format('SELECT token FROM %s WHERE instance_id = $1', instances) INTO lease USING NEW.instance_id;
    IF lease IS NOT NULL AND durite_fence.held(instances, NEW.instance_id) IS NULL THEN
        RAISE EXCEPTION 'fence: history of % without its row, by %', NEW.instance_id, current_query();
    END IF;
    RETURN NEW;
END $$;

-- The trigger itself has locked the row as the update does, FOR NO KEY UPDATE; who holds the lease says its token.
CREATE FUNCTION durite_fence.lease() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instances regclass := format('%I.dur_instances', TG_TABLE_SCHEMA)::regclass;
BEGIN
    IF OLD.token IS NULL OR (NEW.token IS NOT DISTINCT FROM OLD.token AND NEW.owner IS NOT DISTINCT FROM OLD.owner)
       OR (OLD.owner IS NULL AND OLD.expires_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint) THEN
        RETURN NEW;
    END IF;
    IF coalesce(durite_fence.held(instances, OLD.instance_id), '') NOT IN ('made', 'update')
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
