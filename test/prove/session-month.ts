import { ManualClock } from '../unit/doubles/manual-clock.ts';
import { SessionBench } from '../unit/platform/session-bench.ts';

const STEP_MS = 60_000;
const HOUR_STEPS = 60;

export interface MonthReport {
  seed: number;
  days: number;
  calls: number;
  tokens: number;
  faults: Record<string, number>;
  /** Calls with a token that was invalid on arrival. */
  deadTokens: number;
  /** Maximum number of concurrent token requests. */
  renewalsAtOnce: number;
  /** Valid tokens after clean shutdowns. */
  leftAfterStop: number;
}

/**
 * Runs a session for days on a virtual clock, with one call per minute and about one random fault per hour. The token
 * server records protocol violations.
 */
export async function liveMonth(seed: number, days: number): Promise<MonthReport> {
  const chance = new ManualClock(0, seed);
  const bench = await new SessionBench().open();
  const report: MonthReport = {
    seed,
    days,
    calls: 0,
    tokens: 0,
    faults: {},
    deadTokens: 0,
    renewalsAtOnce: 0,
    leftAfterStop: 0,
  };
  const { server } = bench;
  const isAbout = () => chance.random() < 1 / HOUR_STEPS;
  let isUnavailable = false;
  let life = new AbortController();
  let endsIn = 0;
  const endFault = async () => {
    server.faults = [];
    if (isUnavailable) await server.start();
    isUnavailable = false;
  };
  const faults: Record<string, () => Promise<void> | void> = {
    'platform unavailable': async () => {
      await server.stop();
      isUnavailable = true;
    },
    'token requests fail': () => {
      server.faults = [
        (seen, response) => {
          if (!seen.path.startsWith('/oauth/') || chance.random() < 0.3) return false;
          const kind = Math.floor(chance.random() * 4);
          if (kind === 0) response.destroy();
          else if (kind === 1) response.writeHead(503).end();
          else if (kind === 2) response.writeHead(200, { 'content-type': 'text/html' }).end('<html>');
          else response.writeHead(429, { 'retry-after': '30' }).end();
          return true;
        },
      ];
    },
    'calls fail': () => {
      server.faults = [
        (seen, response) => {
          if (seen.path.startsWith('/oauth/') || chance.random() < 0.5) return false;
          response.destroy();
          return true;
        },
      ];
    },
    'kill -9': async () => {
      life.abort();
      bench.renewSession();
      await begin();
    },
    'clean stop': async () => {
      await endFault();
      await bench.session.stop();
      report.leftAfterStop += server.alive().length;
      bench.renewSession();
      await begin();
    },
    'forced renewal': () => void bench.session.renewNow().catch(() => {}),
    'refresh tokens end': () => {
      for (const token of server.tokens.slice(-20))
        token.refreshUntilMs = Math.min(token.refreshUntilMs, bench.clock.monotonicMs());
    },
  };
  /** The start of a session does not wait for an unavailable platform. */
  const begin = async () => {
    life = new AbortController();
    await bench.session.start(life.signal);
    await bench.quiet();
  };
  const names = Object.keys(faults);
  try {
    await begin();
    await bench.pass(days * 24 * 3_600_000, STEP_MS, async () => {
      if (endsIn > 0 && --endsIn === 0) await endFault();
      if (endsIn === 0 && isAbout()) {
        const name = names[Math.floor(chance.random() * names.length)]!;
        report.faults[name] = (report.faults[name] ?? 0) + 1;
        await faults[name]!();
        endsIn = 1 + Math.floor(chance.random() ** 3 * 3 * HOUR_STEPS);
      }
      report.calls++;
      // The call may fail because of the fault. The server checks its token.
      await bench.client
        .request({ method: 'GET', path: '/v1/assets', kind: 'other', signal: AbortSignal.timeout(5_000) })
        .catch(() => {});
      server.seen.length = 0;
      bench.lines.length = 0;
    });
    await endFault();
    // Let the session revoke the tokens of crashed runs.
    await bench.pass(30 * 60_000, STEP_MS);
    await bench.session.stop();
    report.leftAfterStop += server.alive().length;
    report.tokens = server.tokens.length;
    report.deadTokens = server.violations.filter((text) => text.includes('dead token')).length;
    report.renewalsAtOnce = server.mostTokenRequestsAtOnce;
    return report;
  } finally {
    await endFault();
    await bench.close();
  }
}
