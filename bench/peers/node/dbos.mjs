// dbos.mjs: DBOS Transact on PostgreSQL.  A workflow in this process; a step is a checkpointed function.
import { DBOS } from '@dbos-inc/dbos-sdk';
import pg from 'pg';
import { drive, options, tune, versions } from './drive.mjs';

const pool = Number(tune.pool ?? 20);

async function noop() {}

const steps = DBOS.registerWorkflow(
    async (count) => {
        for (let i = 0; i < count; i++) await DBOS.runStep(noop, { name: 'noop' });
    },
    { name: 'steps' },
);

const fan = DBOS.registerWorkflow(
    async (width) => {
        await Promise.all(Array.from({ length: width }, () => DBOS.runStep(noop, { name: 'noop' })));
    },
    { name: 'fan' },
);

async function serverSettings(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    const { rows } = await client.query(
        "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit', 'server_version')",
    );
    await client.end();
    return Object.fromEntries(rows.map((row) => [row.name, row.setting]));
}

await drive(async () => {
    const url = options.values.url;
    const settings = { ...(await serverSettings(url)), pool, step: 'DBOS.runStep in the process of the workflow' };
    DBOS.setConfig({
        name: 'peers',
        systemDatabaseUrl: url,
        systemDatabasePoolSize: pool,
        systemDatabaseSchemaName: `dbos_${process.pid}`,
        logLevel: 'error',
        applicationVersion: '1',
    });
    await DBOS.launch();
    return {
        peer: 'DBOS',
        version: versions['@dbos-inc/dbos-sdk'],
        store: 'postgres',
        settings,
        run: (count) => steps(count),
        fan: (width) => fan(width),
        close: () => DBOS.shutdown(),
    };
});
