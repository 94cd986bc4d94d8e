import { describe, expect, it } from 'vitest';
import { bytesText, counted, durationText } from '../../../src/base/amounts.ts';
import { painter } from '../../../src/base/table.ts';
import { setEnvLines } from '../../../src/commands/configuration/files.ts';
import { type ShownStatus, statusScreen } from '../../../src/commands/status/status-screen.ts';
import { drainSeconds, Rates } from '../../../src/ops/rates.ts';

const SOURCE: ShownStatus['sources'][number] = {
  name: 'plc1',
  kind: 'modbus',
  connected: true,
  since_seconds: 60,
  problem: null,
  hint: null,
  silent: false,
  silent_seconds: 0,
  unusable: null,
  rejected: null,
  warnings: [],
  values: 3,
  missing: null,
  stored: 100,
  last_value_seconds_ago: 1,
  waiting_for_commit: 0,
  errors: 0,
  polls_late: 0,
  window: null,
  redelivered: null,
  certificate_expires: null,
};

const BAD_DAY: ShownStatus = {
  version: '1.2.3',
  pid: 77,
  state: 'platform unavailable',
  started_at: '2026-11-20T00:00:00.000Z',
  uptime_seconds: 97_000,
  configuration: {
    version: 'rollout-7',
    digest: '0123456789ab',
    files_digest: 'fedcba987654',
    disk_digest: 'fedcba987654',
    since: '2026-11-20T00:00:00.000Z',
    changed_files: [],
    refused: null,
    warnings: [],
    restart_needed: [],
    changed_credentials: [],
  },
  certificates: [],
  identity_conflicts: [],
  platform: 'https://a-platform-with-a-rather-long-name.example.com/and/a/path/below/it/all',
  session: {
    state: 'waiting',
    usable: false,
    grant: 'password',
    age_seconds: 700,
    expires_in_seconds: 0,
    renews_in_seconds: undefined,
    retry_in_seconds: 30,
    access_token: '…abcd',
    failures: 4,
    last_error: {
      code: 'platform.sign_in_refused',
      message: 'the token endpoint answered 401 (invalid_client)\u001b[31m to the password grant, and says much more',
      hint: 'Check CLIENT_ID and CLIENT_SECRET, and whether the platform wants CLIENT_AUTH=body; see more.',
    },
  },
  buffer: {
    values: 1_234_567,
    live: 4567,
    backlog: 1_230_000,
    quarantined: 3,
    waiting_for_commit: 0,
    bytes: 4_200_000,
    free_bytes: 12_000_000_000,
    max_bytes: 2_147_483_648,
    lasts_seconds: 90_000,
    oldest_age_seconds: 86_400,
    series: 500,
    set_aside: 0,
    problems: [],
  },
  rates: { ingested_per_minute: 3000, delivered_per_minute: 0, drained_in_seconds: null },
  uplink: {
    state: 'away',
    away: {
      since_seconds: 86_000,
      code: 'platform.dns',
      message: 'has no address',
      foreign_answer: false,
      attempts: 1400,
      next_try_in_seconds: 12.5,
      next_try_at: '2026-11-21T00:00:12.500Z',
    },
    resting: { code: '429', for_seconds: 20, until: '2026-11-21T00:00:20.000Z' },
    last_post_at: '2026-11-20T00:00:00.000Z',
    last_post_seconds_ago: 86_000,
    last_delivered_at: null,
    last_delivered_seconds_ago: null,
    last_error: null,
    delivered_values: 0,
    quarantined_values: 3,
    posts_under_way: 0,
    post_interval_seconds: 10,
    post_max_bytes: 480_000,
    waiting_series: [
      { series: 3, asset: 881, status: 400, message: 'unit: unknown '.repeat(20), next_try_in_seconds: 9 },
    ],
    paused_assets: [],
  },
  requests: {
    minute: 400,
    minute_limit: 400,
    share: 120.5,
    share_reason: 'refused',
    day: 19_000,
    day_limit: 20_000,
    day_projected: 25_000,
    quota: {
      calls: 1_000_000,
      used: 950_000,
      payload: { bytes: 2_000_000_000, used: 1_900_000_000 },
      since: '2026-11-01',
    },
    resting_seconds: 20,
  },
  listener: {
    webhook: '0.0.0.0:8471',
    webhook_url: `https://gateway.example.com/${'x'.repeat(90)}`,
    registered: undefined,
    disabled_by: null,
    failing: null,
    secret_known: false,
  },
  access_user: { id: 5, from: 'setting' },
  silent_targets: [{ target: 'post http://127.0.0.1:1880', reactions: ['alarm'], silent_seconds: 90 }],
  holds: Array.from({ length: 9 }, (_, i) => ({
    kind: i === 0 ? ('instrumentation' as const) : ('asset' as const),
    id: i === 0 ? 4_711_000_001 : 881 + i,
    cause: (i === 0 ? 'instrumentation_disappeared' : 'asset_disappeared') as never,
    since: '2026-11-20T00:00:00.000Z',
    last_probe: null,
    next_probe_in_seconds: 60,
    tags: [`FT-10${i}`],
    values_wait: true,
  })),
  lost_nodes: [{ node: 70, since: '2026-11-20T00:00:00.000Z' }],
  sources: [
    SOURCE,
    {
      ...SOURCE,
      name: 'line2',
      connected: false,
      silent: true,
      silent_seconds: 400,
      problem: 'there is no /dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K-if00-port0 on this machine',
    },
  ],
  events: [],
  tags: 500,
  state_dir: '/var/lib/tagferry',
};

describe('status screen', () => {
  it('fits 80 columns and 42 rows with every problem at once, and contains no control characters from external text', () => {
    const screen = statusScreen(BAD_DAY, 80, (text) => text);
    const lines = screen.split('\n');
    for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(80);
    // A narrow screen never truncates the reason and start time.
    expect(screen).toMatch(/instrumentation 4711000001 disappeared since 2026-11-20 00:00:00/);
    expect(screen).toMatch(/^nodes +node 70 missing since 2026-11-20/m);
    expect(lines.length).toBeLessThanOrEqual(42);
    expect(screen).not.toContain('\u001b');
    expect(screen).toMatch(/^ +1.9 GB of 2.0 GB payload \(95 %\)/m);
    expect(screen).toMatch(/^quota +950,000 of 1,000,000 calls \(95 %\) since 2026-11-01, enough for 2 d/m);
    expect(screen).toContain('posted after the outage');
    expect(screen).not.toContain('growing at the current rate');
    expect(screen).toContain('and 4 more, see `tagferry status --json`');
  });

  it('fits 40 columns with every problem at once', () => {
    const lines = statusScreen(BAD_DAY, 40, (text) => text).split('\n');
    expect(
      lines.filter(
        (line) =>
          line.length > 40 &&
          line
            .trim()
            .split(/\s{2,}/)
            .at(-1)!
            .includes(' '),
      ),
    ).toEqual([]);
  });

  it('truncates no errors or hints on a terminal, and nothing in a pipe', () => {
    const flat = (screen: string) => screen.replaceAll(/\s+/g, ' ');
    const screen = statusScreen(BAD_DAY, 80, (text) => text);
    expect(flat(screen)).toContain('whether the platform wants CLIENT_AUTH=body; see more.');
    expect(screen).toMatch(/…$/m);
    const piped = statusScreen(BAD_DAY, 80, (text) => text, 'wrap');
    expect(piped).not.toMatch(/…$/m);
    expect(flat(piped)).toContain('unit: unknown '.repeat(20).trim());
    // An address longer than a line is not wrapped.
    for (const line of piped.split('\n')) expect(line, line).toMatch(/^.{1,80}$|^.{10}\S+$/);
  });

  it('reports other clients only as a possible cause of a 429 response', () => {
    const screen = statusScreen(BAD_DAY, 80, (text) => text, 'wrap').replaceAll(/\s+/g, ' ');
    expect(screen).toContain('limited to 120.5 per minute, reduced after a 429 response; other clients may share');
  });

  it('has the same width with or without colours', () => {
    const paint = painter({ isTTY: true }, { TERM: 'xterm' });
    const coloured = statusScreen(BAD_DAY, 80, paint);
    expect(coloured).toContain('\u001b[33m');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colour is what is taken away
    expect(coloured.replaceAll(/\u001b\[\d+m/g, '')).toBe(statusScreen(BAD_DAY, 80, (text) => text));
    expect(painter({ isTTY: true }, { NO_COLOR: '1' })('x', 'red')).toBe('x');
    expect(painter({}, {})('x', 'red')).toBe('x');
  });
});

describe('rates on the status screen', () => {
  it('cover the last minute', () => {
    const rates = new Rates(0);
    for (let s = 10; s <= 600; s += 10)
      rates.sample(s * 1000, { ingested: s * 100, delivered: s < 540 ? 0 : (s - 540) * 1000 });
    expect(rates.at(600_000, { ingested: 60_000, delivered: 60_000 })).toEqual({
      ingestedPerMinute: 6000,
      deliveredPerMinute: 60_000,
    });
  });

  it('show when a backlog will be cleared, or that it is not shrinking', () => {
    const old = { oldestAgeMs: 600_000, intervalMs: 10_000 };
    expect(drainSeconds({ values: 54_000, ...old }, { ingestedPerMinute: 6000, deliveredPerMinute: 60_000 })).toBe(60);
    expect(drainSeconds({ values: 1, ...old }, { ingestedPerMinute: 60, deliveredPerMinute: 60 })).toBeNull();
    expect(drainSeconds({ values: 0, ...old }, { ingestedPerMinute: 60, deliveredPerMinute: 0 })).toBe(0);
  });

  it('show that a gateway keeps up although it delivers no more than it ingests', () => {
    const steady = { ingestedPerMinute: 6000, deliveredPerMinute: 5990 };
    expect(drainSeconds({ values: 1_000, oldestAgeMs: 12_000, intervalMs: 10_000 }, steady)).toBe(0);
    expect(drainSeconds({ values: 12_000, oldestAgeMs: 119_000, intervalMs: 60_000 }, steady)).toBe(0);
    const { buffer, uplink } = BAD_DAY;
    const online: ShownStatus = {
      ...BAD_DAY,
      state: 'online',
      buffer: { ...buffer, values: 1_000, backlog: 600, oldest_age_seconds: 12 },
      rates: { ingested_per_minute: 6000, delivered_per_minute: 5990, drained_in_seconds: 0 },
      uplink: { ...uplink, state: 'online', away: null },
    };
    expect(statusScreen(online, 80, (text) => text)).toContain('oldest 12 s, posted continuously');
    const behind = { ...online, rates: { ...online.rates, drained_in_seconds: null } };
    expect(statusScreen(behind, 80, (text) => text)).toContain('growing at the current rate');
  });
});

describe('amounts on the status screen', () => {
  it('have units and thousands separators', () => {
    expect([0, 59, 60, 125, 3600, 90_000].map(durationText)).toEqual([
      '0 s',
      '59 s',
      '1 min',
      '2 min 5 s',
      '1 h',
      '1 d 1 h',
    ]);
    expect([0, 999, 1000, 480_000, 2_147_483_648].map(bytesText)).toEqual([
      '0 B',
      '999 B',
      '1.0 kB',
      '480 kB',
      '2.1 GB',
    ]);
    expect([counted(1, 'tag'), counted(1204, 'tag')]).toEqual(['1 tag', '1,204 tags']);
  });
});

describe('agent.env written by setup', () => {
  it('retains other lines, and replaces values in place, with quotes if required', () => {
    const text = '# one\nA=1\n#B=default\n# two\n';
    const set = setEnvLines(
      text,
      new Map([
        ['A', "it's #1"],
        ['B', 'with space'],
        ['C', ''],
        ['D', 'plain'],
      ]),
    );
    expect(set).toBe("# one\nA=\"it's #1\"\n#B=default\nB='with space'\n# two\nD=plain\n");
  });
});
