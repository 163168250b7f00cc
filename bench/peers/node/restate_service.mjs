// restate_service.mjs PORT: the service endpoint that the Restate server calls.  A step is ctx.run.
import { createServer } from 'node:http2';
import * as restate from '@restatedev/restate-sdk';

const noop = () => {};
const JOINED = 100;

const peer = restate.service({
    name: 'peer',
    handlers: {
        steps: async (ctx, count) => {
            for (let i = 0; i < count; i++) await ctx.run('noop', noop);
        },
        fan: async (ctx, width) => {
            const all = Array.from({ length: width }, () => ctx.run('noop', noop));
            // In parts, because the cost of one join grows with the square of its width.
            for (let i = 0; i < width; i += JOINED) await restate.RestatePromise.all(all.slice(i, i + JOINED));
        },
    },
});

createServer(restate.createEndpointHandler({ services: [peer] })).listen(Number(process.argv[2]), '127.0.0.1');
