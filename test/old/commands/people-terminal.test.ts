import { Command } from 'commander';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Clock, systemClock } from '../../../src/base/clock.ts';
import { define as defineLabels } from '../../../src/commands/verbs/labels.ts';
import { define as defineMembers } from '../../../src/commands/verbs/members.ts';
import { define as defineOwners } from '../../../src/commands/verbs/owners.ts';
import { define as definePermissions } from '../../../src/commands/verbs/permissions.ts';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Account } from './person-browser.ts';

/** Runs verbs in this process, with a changed clock and standard output as a terminal. */
const DEFINITIONS = {
  permissions: definePermissions,
  owners: defineOwners,
  members: defineMembers,
  labels: defineLabels,
};
const BEN = 'ben@sandbox.example';

let sandbox: Sandbox;
let account: Account;
let printed: { out: string; err: string };

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  account = new Account(sandbox);
  for (const [name, value] of Object.entries(account.environment)) vi.stubEnv(name, value);
  printed = { out: '', err: '' };
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => {
    printed.out += String(text);
    return true;
  });
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => {
    printed.err += String(text);
    return true;
  });
});
afterEach(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  account.dispose();
  await sandbox.stop();
});

async function run(clock: Clock, verb: keyof typeof DEFINITIONS, ...args: string[]): Promise<void> {
  const program = new Command('tagferry').option('--config <dir>').exitOverride();
  DEFINITIONS[verb](program, clock);
  await program.parseAsync([verb, ...args], { from: 'user' });
}

const at = (date: string): Clock => ({ ...systemClock, wallMs: () => Date.parse(date) });

describe('commands with --v1', () => {
  const forms = [
    [
      '2027-03-01',
      'tagferry labels change Asset/881 <key> name=<label>',
      ['labels', 'change', 'Asset/881', 'flow=Flow'],
    ],
    [
      '2027-05-01',
      'tagferry permissions grant <e-mail> Asset/881 can_read',
      ['permissions', 'grant', 'user/7', 'Asset/881', 'read'],
    ],
    ['2027-05-01', 'tagferry permissions take <e-mail>', ['permissions', 'take', '9', '--yes']],
    ['2027-05-01', 'tagferry owners take <e-mail> Asset/881', ['owners', 'take', 'user/7', 'Asset/881', '--yes']],
    [
      '2027-07-01',
      'tagferry members grant tenant-users/50 <e-mail>',
      ['members', 'grant', 'tenant-users/50', 'user/7'],
    ],
    [
      '2027-07-01',
      'tagferry members change userrole-users/60 <e-mail>',
      ['members', 'change', 'userrole-users/60', '7', '--yes'],
    ],
  ] as const;

  it.each(forms)('fail from %s on, with a hint that contains the v2 form %s', async (sunset, v2, [verb, ...args]) => {
    await expect(run(at(`${sunset}T00:00:00Z`), verb, ...args, '--v1', '--dry-run')).rejects.toMatchObject({
      code: 'platform.sunset',
      hint: expect.stringContaining(v2),
    });
    expect(sandbox.requests.list()).toEqual([]);
  });

  it.each(forms)(
    'send their request before %s, and print a warning that contains the date and %s',
    async (sunset, v2, [verb, ...args]) => {
      await run(at(new Date(Date.parse(sunset) - 1).toISOString()), verb, ...args, '--v1', '--dry-run');
      expect(JSON.parse(printed.out)).toMatchObject({
        dry_run: true,
        requests: [{ url: expect.stringContaining('/v1/') }],
      });
      expect(printed.err).toContain(`will be removed on ${sunset}`);
      expect(printed.err).toContain(v2);
    },
  );

  it('fail while the system clock is not set', async () => {
    await expect(run(at('1970-01-01T00:10:00Z'), 'permissions', 'ls', 'Asset/881', '--v1')).rejects.toMatchObject({
      code: 'platform.sunset_unknown',
      hint: expect.stringContaining('tagferry permissions ls Asset/881'),
    });
    expect(sandbox.requests.list()).toEqual([]);
  });

  it('also fail for lists', async () => {
    await expect(run(at('2027-05-02T00:00:00Z'), 'permissions', 'ls', 'Asset/881', '--v1')).rejects.toMatchObject({
      code: 'platform.sunset',
      hint: expect.stringContaining('tagferry permissions ls Asset/881'),
    });
  });
});

describe('permission changes on a terminal', () => {
  beforeEach(() => {
    Object.defineProperty(process.stdout, 'isTTY', { value: true, configurable: true });
  });
  afterEach(() => {
    delete (process.stdout as { isTTY?: boolean }).isTTY;
  });

  it('are printed as a sentence, and as JSON on request', async () => {
    await run(systemClock, 'owners', 'grant', BEN, 'Asset/881', '--dry-run');
    expect(printed.out).toMatch(/^POST http.*\/v2\/owners\n/);
    printed.out = '';
    await run(systemClock, 'owners', 'grant', BEN, 'Asset/881', '--dry-run', '--json');
    expect(JSON.parse(printed.out)).toMatchObject({ dry_run: true });
  });
});
