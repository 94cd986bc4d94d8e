// Run with NODE_OPTIONS=--experimental-vm-modules, for the package is an ES module.
import { Sandbox } from 'tagferry-sandbox';
import { postFlow } from './client.js';

const sandbox = new Sandbox();
beforeAll(() => sandbox.start());
afterAll(() => sandbox.stop());
beforeEach(() => {
  sandbox.requests.clear();
  sandbox.faults.clear();
});

test('posts a flow within 5 s', async () => {
  const posting = postFlow(sandbox.url, 881, 12.5);
  const { request } = await sandbox.expectRequest({ method: 'POST', asset: 881, withinMs: 5_000 });
  expect(request.body.values).toMatchObject([{ key: 'flow', data: [{ value: 12.5 }] }]);
  expect(await posting).toBe(204);
});

test('is told what came instead when nothing fits', async () => {
  await postFlow(sandbox.url, 882, 12.5);
  await expect(sandbox.expectRequest({ method: 'POST', asset: 881, withinMs: 10 })).rejects.toThrow(
    /POST of asset 881 did not come .* POST \/v1\/assets\/882\/values: 204/,
  );
});
