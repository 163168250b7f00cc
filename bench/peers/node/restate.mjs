// restate.mjs: Restate with its own server (a log and RocksDB below --dir); restate_service.mjs is the service endpoint.
// An orchestration is a call of the service's handler through the ingress.
import { fork, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { arch, platform } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as clients from '@restatedev/restate-sdk-clients';
import { drive, options, tune, versions } from './drive.mjs';

async function freePort() {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
}

// Until the server answers: it formats its store at its first start.
async function register(admin, endpoint) {
    for (;;) {
        try {
            const response = await fetch(`http://127.0.0.1:${admin}/deployments`, {
                method: 'POST',
                headers: { 'content-type': 'application/json' },
                body: JSON.stringify({ uri: `http://127.0.0.1:${endpoint}` }),
            });
            if (response.ok) return;
        } catch {
            // not there yet
        }
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

async function open() {
    const dir = mkdtempSync(join(options.values.dir, 'restate-'));
    const [node, admin, ingress, endpoint] = await Promise.all([freePort(), freePort(), freePort(), freePort()]);
    const settings = {
        RESTATE_DEFAULT_NUM_PARTITIONS: tune.partitions ?? '2',
        RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC: 'false', // the default: a commit is on disk
    };
    const binary = createRequire(import.meta.url).resolve(
        `@restatedev/restate-server-${platform()}-${arch()}/bin/restate-server`,
    );
    const server = spawn(binary, ['--no-logo', '--base-dir', dir], {
        stdio: 'ignore',
        env: {
            ...process.env,
            ...settings,
            RESTATE_LISTEN_MODE: 'tcp',
            RESTATE_BIND_ADDRESS: `127.0.0.1:${node}`,
            RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${node}/`,
            RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
            RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
            RESTATE_DISABLE_TELEMETRY: 'true',
            RESTATE_LOG_FILTER: 'error',
        },
    });
    const service = fork(fileURLToPath(new URL('restate_service.mjs', import.meta.url)), [String(endpoint)], {
        env: { ...process.env, RESTATE_LOGGING: 'ERROR' },
    });
    const stop = () => {
        service.kill('SIGKILL');
        server.kill('SIGKILL');
        rmSync(dir, { recursive: true, force: true, maxRetries: 10 });
    };
    process.on('exit', stop);
    for (const child of [server, service])
        child.on('exit', (code) => {
            console.error(`restate: ${child.spawnargs.join(' ')} ended with ${code}`);
            process.exit(1);
        });
    for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
    await register(admin, endpoint);
    const client = clients.connect({ url: `http://127.0.0.1:${ingress}` }).serviceClient({ name: 'peer' });
    return {
        peer: 'Restate',
        version: `${versions['@restatedev/restate-server']}, TypeScript SDK ${versions['@restatedev/restate-sdk']}`,
        store: 'restate',
        settings,
        run: (count) => client.steps(count),
        fan: (width) => client.fan(width),
        close: () => {},
    };
}

await drive(open);
