// drive.mjs: the three workloads, for any engine that can start an orchestration and wait for its result.
//
// An engine is { peer, version, store, settings, run(steps), fan(width), close() }; run and fan resolve when the
// orchestration's result has reached the client.  Prints one line of JSON, as durite-bench has it in its results.
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const IN_FLIGHT = 20;
const STEPS = 5;

export const options = parseArgs({
    allowPositionals: true,
    options: {
        url: { type: 'string', default: '' },
        dir: { type: 'string', default: '.' },
        seconds: { type: 'string', default: '10' },
        width: { type: 'string', default: '100' },
        tune: { type: 'string', multiple: true, default: [] }, // name=value, for trying settings
    },
});
export const tune = Object.fromEntries(options.values.tune.map((pair) => pair.split('=')));
// Exact ones: package.json pins them.
export const versions = JSON.parse(readFileSync(new URL('package.json', import.meta.url))).dependencies;
const workload = options.positionals[0];
const seconds = Number(options.values.seconds);

function percentile(sorted, p) {
    return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * p) / 100))];
}

// One client: orchestration after orchestration until the time is over; microseconds of each.
async function client(engine, steps, until, latencies) {
    while (performance.now() < until) {
        const begin = performance.now();
        await engine.run(steps);
        latencies.push((performance.now() - begin) * 1000);
    }
}

async function closedLoop(engine, clients, steps) {
    await Promise.all(Array.from({ length: clients }, () => engine.run(steps))); // compiled, connected
    const latencies = [];
    const begin = performance.now();
    await Promise.all(
        Array.from({ length: clients }, () => client(engine, steps, begin + seconds * 1000, latencies)),
    );
    const elapsed = (performance.now() - begin) / 1000;
    latencies.sort((a, b) => a - b);
    return {
        orchestrations_per_s: latencies.length / elapsed,
        steps_per_s: (latencies.length * steps) / elapsed,
        p50_us: percentile(latencies, 50),
        p99_us: percentile(latencies, 99),
    };
}

const workloads = {
    sequential: async (engine) => [{ in_flight: IN_FLIGHT }, await closedLoop(engine, IN_FLIGHT, STEPS)],
    single: async (engine) => [{}, await closedLoop(engine, 1, 1)],
    fanout: async (engine) => {
        const width = Number(options.values.width);
        await engine.run(1);
        const begin = performance.now();
        await engine.fan(width);
        return [{ width }, { seconds: (performance.now() - begin) / 1000 }];
    },
};

export async function drive(open) {
    if (!(workload in workloads)) {
        console.error(`usage: PROGRAM [--url URL] [--dir DIR] [--seconds S] [--width N] ${Object.keys(workloads).join('|')}`);
        process.exit(2);
    }
    const engine = await open();
    const [params, metrics] = await workloads[workload](engine);
    const { peer, version, store, settings } = engine;
    await engine.close();
    console.log(JSON.stringify({ workload, store, params, metrics, peer, version, settings }));
    process.exit(0);
}
