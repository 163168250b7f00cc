// report.mjs RAW OUT DISK PEERS: peers.md and peers.svg in OUT from what bench/peers/run left in RAW.
//
// RAW has PEER-WORKLOAD[-WIDTH].ROUND.json (one result of a peer, or a document of durite-bench), .failed (the reason why
// there is none) and PEER.missing (the reason why a peer was not run at all).
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';

const [raw, out, disk, peerList] = process.argv.slice(2);
const files = readdirSync(raw).sort();
const read = (file) => readFileSync(join(raw, file), 'utf8').trim();
const titles = {
    'durite-sqlite': ['**Durite**', 'SQLite'],
    'durite-postgres': ['**Durite**', 'PostgreSQL'],
    'duroxide-sqlite': ['duroxide', 'SQLite'],
    'duroxide-sqlite-as-shipped': ['duroxide as shipped', 'SQLite, no fsync per commit'],
    'duroxide-postgres': ['duroxide-pg', 'PostgreSQL'],
    'dbos-postgres': ['DBOS', 'PostgreSQL'],
    restate: ['Restate', 'its own, 2 partitions'],
    'restate-as-shipped': ['Restate as shipped', 'its own, 24 partitions'],
};

// The one result in a file; durite-bench puts it into a document.
function result(file) {
    const document = JSON.parse(read(file));
    if (!document.results) return document;
    return {
        ...document.results.find((each) => each.workload !== 'limit'),
        peer: 'Durite',
        version: document.settings.version,
        settings: document.settings,
    };
}

function median(values) {
    const sorted = values.toSorted((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const numeral = (value) => value.toLocaleString('en', { maximumSignificantDigits: 3 });
const notes = [];

// What the rounds of one peer and workload measured.
class Cell {
    constructor(peer, run) {
        const prefix = `${peer}-${run}.`;
        this.results = files.filter((file) => file.startsWith(prefix) && file.endsWith('.json')).map(result);
        this.failures = files.filter((file) => file.startsWith(prefix) && file.endsWith('.failed')).map(read);
        this.title = `${titles[peer].join(', ').replaceAll('**', '')}, ${run.replace('-', ' ')}`;
    }
    value(metric) {
        return this.results.length ? median(this.results.map((each) => each.metrics[metric])) : NaN;
    }
    // The figure, or a dash that the notes below the table explain.
    show(metric, scale = 1) {
        const lost = this.results.reduce((sum, each) => sum + (each.metrics.failures ?? 0), 0);
        if (lost) this.note(`${lost} orchestrations failed and are not counted`);
        if (this.results.length) return numeral(this.value(metric) * scale);
        this.note(this.failures[0] ?? 'not measured');
        return '–';
    }
    note(text) {
        const note = `${this.title}: ${text}`;
        if (!notes.includes(note)) notes.push(note);
    }
}

const rows = peerList.split(' ').flatMap((peer) => {
    const absent = files.includes(`${peer}.missing`);
    if (absent) notes.push(`${titles[peer].join(', ')}: ${read(`${peer}.missing`)}`);
    if (absent || !files.some((file) => file.startsWith(`${peer}-`) && !file.startsWith(`${peer}-as-`))) return [];
    const cells = ['sequential', 'single', 'fanout-100', 'fanout-1000', 'fanout-10000'].map((run) => new Cell(peer, run));
    const [sequential, single, ...fanout] = cells;
    const known = cells.flatMap((cell) => cell.results);
    return [{ peer, title: titles[peer], sequential, single, fanout, example: known[0] }];
});

// ---- table ----

const table = [
    '| engine | store | orchestrations/s | steps/s | p50 | p99 | single p50 | p99 | fan-out 100 | 1,000 | 10,000 |',
    '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|',
    ...rows.map(({ title, sequential, single, fanout }) => {
        const cells = [
            sequential.show('orchestrations_per_s'),
            sequential.show('steps_per_s'),
            sequential.show('p50_us', 1e-3),
            sequential.show('p99_us', 1e-3),
            single.show('p50_us', 1e-3),
            single.show('p99_us', 1e-3),
            ...fanout.map((cell) => cell.show('seconds', 1e3)),
        ];
        return `| ${title.join(' | ')} | ${cells.join(' | ')} |`;
    }),
];

const ratios = rows
    .filter(({ peer }) => !peer.startsWith('durite'))
    .map(({ peer, title, sequential, single }) => {
        const own = rows.find((row) => row.peer === (peer.endsWith('postgres') ? 'durite-postgres' : 'durite-sqlite'));
        const times = (ratio) => (Number.isFinite(ratio) ? `${numeral(ratio)} ×` : '–');
        return [
            `| ${title.join(' | ')} | ${own?.title[1] ?? '–'}`,
            times(own?.sequential.value('steps_per_s') / sequential.value('steps_per_s')),
            `${times(single.value('p50_us') / own?.single.value('p50_us'))} |`,
        ].join(' | ');
    });

const settings = rows
    .filter(({ example }) => example)
    .map(({ title, example }) => {
        const pairs = Object.entries(example.settings).filter(([, value]) => typeof value !== 'object');
        return `- ${title.join(', ')}: version ${example.version}; ${pairs
            .filter(([name]) => !['version', 'seconds', 'repeat', 'disk'].includes(name))
            .map(([name, value]) => `\`${name}\` ${value}`)
            .join(', ')}`;
    });

const rounds = Math.max(...files.map((file) => Number(/\.(\d+)\.json$/.exec(file)?.[1] ?? 0)));
writeFileSync(
    join(out, 'peers.md'),
    `# Durite beside other engines

Written by \`bench/peers/run\` on ${new Date().toISOString().slice(0, 10)}: ${cpus().length} cores (${cpus()[0].model}),
${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}, ${disk}. Medians of ${rounds} round${rounds === 1 ? '' : 's'}; all engines in one run, on one disk and with
one private PostgreSQL. \`bench/peers/README.md\` says what is compared and which settings were tried.

${table.join('\n')}

Times are milliseconds. **sequential** (the first four columns): 5 sequential no-op activities per orchestration, 20
orchestrations in flight. **single**: one orchestration of one activity at a time, start to result. **fan-out**: so many
activities at once in one orchestration, start to result.
${notes.length ? `\nNotes:\n\n${notes.map((note) => `- ${note}`).join('\n')}\n` : ''}
![steps per second, latency and fan-out on logarithmic scales](peers.svg)

How many times as fast Durite is:

| than | store | Durite on | sequential, steps/s | single, p50 |
|---|---|---|--:|--:|
${ratios.join('\n')}

Settings, as the programs read them back or set them:

${settings.join('\n')}
`,
);

// ---- plot: three panels of bars on a logarithmic scale ----

const panels = [
    ['sequential: steps/s (longer is better)', (row) => row.sequential.value('steps_per_s')],
    ['single: p50, ms (shorter is better)', (row) => row.single.value('p50_us') / 1000],
    ['fan-out of 1,000: ms (shorter is better)', (row) => row.fanout[1].value('seconds') * 1000],
];
const LEFT = 260, WIDTH = 620, BAR = 16, GAP = 6, HEAD = 44;
const height = panels.length * (HEAD + rows.length * (BAR + GAP) + 30);
const svg = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${LEFT + WIDTH + 90} ${height}" font-family="sans-serif" font-size="12">`,
    `<rect width="100%" height="100%" fill="#fff"/>`,
];
let top = 0;
for (const [title, of] of panels) {
    const values = rows.map(of);
    const known = values.filter((value) => value > 0);
    const low = Math.floor(Math.log10(Math.min(...known)) - 0.01);
    const high = Math.ceil(Math.log10(Math.max(...known)) + 0.01);
    const x = (value) => LEFT + (WIDTH * (Math.log10(value) - low)) / (high - low);
    const bottom = top + HEAD + rows.length * (BAR + GAP);
    svg.push(`<text x="${LEFT}" y="${top + 24}" font-weight="bold">${title}</text>`);
    for (let decade = low; known.length && decade <= high; decade++) {
        const at = x(10 ** decade).toFixed(1);
        svg.push(`<line x1="${at}" x2="${at}" y1="${top + HEAD - 8}" y2="${bottom}" stroke="#ddd"/>`);
        svg.push(`<text x="${at}" y="${bottom + 14}" text-anchor="middle" fill="#666">${(10 ** decade).toLocaleString('en')}</text>`);
    }
    rows.forEach((row, i) => {
        const y = top + HEAD + i * (BAR + GAP);
        const name = `${row.title.join(', ')}`.replaceAll('**', '').replace(', no fsync per commit', ' (no fsync)').replace('its own, ', '');
        svg.push(`<text x="${LEFT - 8}" y="${y + 12}" text-anchor="end">${name}</text>`);
        const end = values[i] > 0 ? x(values[i]) : LEFT;
        const fill = row.peer.startsWith('durite') ? '#1b6ca8' : '#b5b5b5';
        svg.push(`<rect x="${LEFT}" y="${y}" width="${(end - LEFT).toFixed(1)}" height="${BAR}" fill="${fill}"/>`);
        svg.push(`<text x="${(end + 5).toFixed(1)}" y="${y + 12}">${values[i] > 0 ? numeral(values[i]) : 'not measured'}</text>`);
    });
    top = bottom + 30;
}
svg.push('</svg>');
writeFileSync(join(out, 'peers.svg'), svg.join('\n') + '\n');
