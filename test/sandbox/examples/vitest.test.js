import { Sandbox } from 'tagferry-sandbox';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { postFlow } from './client.js';

const sandbox = new Sandbox();
beforeAll(() => sandbox.start());
afterAll(() => sandbox.stop());
beforeEach(() => {
  sandbox.requests.clear();
  sandbox.faults.clear();
});

it('posts a flow within 5 s', async () => {
  const posting = postFlow(sandbox.url, 881, 12.5);
  const { request } = await sandbox.expectRequest({ method: 'POST', asset: 881, withinMs: 5_000 });
  expect(request.body.values).toMatchObject([{ key: 'flow', data: [{ value: 12.5 }] }]);
  expect(await posting).toBe(204);
});

it('hears that the platform is busy', async () => {
  sandbox.faults.add({ asset: 881, status: 503, retryAfter: 7, times: 1 });
  expect(await postFlow(sandbox.url, 881, 12.5)).toBe(503);
});

it('leaves no token behind, and no mark in the exam', async () => {
  sandbox.clientExam.begin();
  await postFlow(sandbox.url, 881, 12.5);
  await sandbox.expectRequest({ path: '/oauth/revoke', status: 200, withinMs: 0 });
  expect(sandbox.clientExam.marks().filter(({ state }) => state === 'broken')).toEqual([]);
});
