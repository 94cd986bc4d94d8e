import { existsSync } from 'node:fs';
import { outputOf } from '../program-output.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';

/** No build of tagferry existed before: such a clock is wrong. */
const EARLIEST_MS = Date.UTC(2026, 0, 1);

/** The machine's clock: plausible, and kept by somebody. How far it is from the platform's comes with the API call. */
export async function checkClock({ clock }: Consultation): Promise<CheckLine[]> {
  const nowMs = clock.wallMs();
  const utc = new Date(nowMs).toISOString().slice(0, 19).replace('T', ' ');
  if (nowMs < EARLIEST_MS) {
    const next =
      'Set it (`timedatectl set-ntp true`, `date -s`). Until then TLS fails first: every certificate looks not valid yet.';
    return [failure('clock', `the clock says ${utc} UTC`, next)];
  }
  const synchronised = existsSync('/run/systemd/timesync/synchronized') ? 'yes' : await ntpState();
  if (synchronised === 'no') {
    const next = 'Run `timedatectl set-ntp true`, or chrony; timestamps of values depend on it.';
    return [warning('clock', `the clock says ${utc} UTC, and nobody keeps it right`, next)];
  }
  const kept = synchronised === 'yes' ? ', synchronised' : '';
  return [ok('clock', `the clock says ${utc} UTC${kept}`)];
}

async function ntpState(): Promise<'yes' | 'no' | undefined> {
  const shown = await outputOf('timedatectl', ['show', '--property=NTPSynchronized', '--value']);
  const state = shown?.trim();
  return state === 'yes' || state === 'no' ? state : undefined;
}
