import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';
import { EventPlant, NOTHING_WRONG } from './event-plant.ts';

let sandbox: Sandbox;
let plant: EventPlant;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  plant = await EventPlant.at(sandbox);
});
afterEach(async () => {
  await plant.agent.dispose();
  await sandbox.stop();
});

it('reactions run once per event despite duplicate, reordered and forged deliveries', async () => {
  await plant.begin();
  const { url, secret } = sandbox.webhooks()[0]!;
  const post = (body: string, key: string) =>
    fetch(url, { method: 'POST', body, headers: { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), key) } });
  const refused: number[] = [];
  for (let round = 0; round < 12; round++) {
    // The rest of the round happens during their delivery.
    plant.send(10);
    const known = sandbox.deliveries();
    const some = known.filter((_, i) => (i * 7 + round) % 5 === 0).reverse();
    const turned = some.map(({ payload }) => {
      const { content, ...rest } = JSON.parse(payload) as Record<string, unknown>;
      return JSON.stringify({ content, ...rest });
    });
    const forged = JSON.stringify({ ...JSON.parse(known[0]!.payload), occurred_at: `2026-11-22T00:00:${10 + round}Z` });
    sandbox.resend(some.map(({ id }) => id));
    const answers = await Promise.all([
      plant.ask('events/catch-up').then(({ status }) => status),
      ...turned.map((body) => post(body, secret).then(({ status }) => status)),
      post(forged, 'another secret').then(({ status }) => status),
      plant.ask('events/catch-up').then(({ status }) => status),
    ]);
    refused.push(answers.at(-2)!);
    expect(answers.slice(1, -2).every((status) => status === 204)).toBe(true);
  }
  await plant.settle();
  expect(refused).toEqual(Array.from({ length: 12 }, () => 401));
  expect(plant.ran().sort((a, b) => a - b)).toEqual([...plant.meant].sort((a, b) => a - b));
  expect(await plant.count()).toEqual(NOTHING_WRONG);
});

it('command that floods its output and ignores SIGTERM is terminated with its children, and delays no other command', async () => {
  const { agent } = plant;
  const hostile =
    'trap "" TERM; for i in 1 2 3 4 5 6 7 8; do (trap "" TERM; setsid sh -c "trap : TERM; while :; do sleep 1; done" & yes flood) & done; yes more';
  const env = Object.fromEntries(
    readFileSync(`${agent.config}/agent.env`, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('WEBHOOK_'))
      .map((line) => line.split('=') as [string, string]),
  );
  agent.write(sandbox.url, {
    tags: readFileSync(`${agent.config}/tags.yaml`, 'utf8'),
    reactions: `${readFileSync(`${agent.config}/reactions.yaml`, 'utf8')}  - name: hostile
    on: threshold_reached
    if: { data.key: look }
    do: [{ run: [/bin/sh, -c, '${hostile}'], timeout: 1s }]
`,
    env,
  });
  await plant.begin();
  plant.send(9);
  await agent.until(() => plant.ran().length === 2, 'the other events have run');
  await agent.until(
    () => agent.logged('reaction.command').some(({ cut }) => cut === 'timeout'),
    'the command was terminated',
  );
  expect(agent.memoryMb()).toBeLessThan(256);
  await agent.end('SIGTERM');
  await agent.until(() => marked().length === 0, 'no process is left', 20_000).catch(() => {});
  expect(marked()).toEqual([]);
});

/** Returns processes with the marker of a reaction command. */
function marked(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const environment = readFileSync(`/proc/${pid}/environ`, 'latin1');
        return environment.includes('TAGFERRY_RUN=') && environment.includes('TAGFERRY_REACTION=hostile');
      } catch {
        return false;
      }
    });
}
