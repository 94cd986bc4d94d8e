import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { listen } from '../../../src/base/listen.ts';

describe('listener', () => {
  it('removes its event handlers if listening fails', async () => {
    const first = createServer();
    const second = createServer();
    const options = { setting: 'OPS_LISTEN', code: 'ops.listen' };
    await listen(first, { host: '127.0.0.1', port: 0 }, options);
    const { port } = first.address() as { port: number };
    const taken = { host: '127.0.0.1', port };
    for (let attempt = 0; attempt < 3; attempt++) {
      await expect(listen(second, taken, options)).rejects.toThrow(
        `OPS_LISTEN: cannot listen on 127.0.0.1:${port} (EADDRINUSE)`,
      );
    }
    expect([second.listenerCount('listening'), second.listenerCount('error')]).toEqual([0, 0]);
    await new Promise((resolve) => first.close(resolve));
    await listen(second, taken, options);
    await new Promise((resolve) => second.close(resolve));
  });
});
