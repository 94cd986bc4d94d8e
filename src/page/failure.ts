/** Problems in the status, each with its message and the command that fixes it. */
import { counted, countText, durationText } from '../base/amounts.ts';
import { findings, shellWord } from '../ops/findings.ts';
import type { StatusReport } from '../ops/status-report.ts';
import { noTokenState } from '../platform/response-meanings.ts';

export interface Failure {
  /** Identifier that is stable across updates. */
  id: string;
  title: string;
  /** Original message. */
  words: string;
  hint?: string;
  /** Command to copy. */
  command?: string;
}

export function failuresOf(now: StatusReport): Failure[] {
  return [
    ...configurationFailures(now),
    ...bufferFailures(now),
    ...sessionFailures(now),
    ...platformFailures(now),
    ...holdFailures(now),
    ...sourceFailures(now),
    ...listenerFailures(now),
    ...eventFailures(now),
  ];
}

function configurationFailures({ configuration }: StatusReport): Failure[] {
  const found: Failure[] = [];
  const { refused, restart_needed: keys, changed_credentials: credentials } = configuration;
  if (refused) {
    const title = 'Configuration rejected, previous configuration in effect';
    found.push({ id: 'files', title, words: refused.problems.join('; '), command: 'tagferry check' });
  }
  const { changed_files: files } = configuration;
  if (files.length > 0) {
    const title = 'Changed configuration files are not loaded';
    found.push({ id: 'changed files', title, words: files.join(', '), command: 'tagferry reload' });
  }
  const changed = [...keys, ...credentials.map((name) => `credential ${name}`)];
  if (changed.length > 0) {
    const title = 'Changed settings require a restart';
    found.push({ id: 'restart', title, words: changed.join(', '), command: 'systemctl restart tagferry' });
  }
  return found;
}

function bufferFailures({ buffer }: StatusReport): Failure[] {
  const found: Failure[] = buffer.problems.map((words) => ({
    id: `buffer ${words.slice(0, 40)}`,
    title: 'New values are rejected',
    words,
    command: 'tagferry doctor',
  }));
  if (buffer.quarantined > 0) {
    const title = `${counted(buffer.quarantined, 'value')} in quarantine`;
    const words =
      'The platform rejected these values. The agent keeps them and does not post them again automatically.';
    found.push({ id: 'quarantine', title, words, command: 'tagferry buffer quarantine' });
  }
  if (buffer.set_aside > 0) {
    const title = `${counted(buffer.set_aside, 'corrupt part')} of the buffer set aside`;
    found.push({
      id: 'set aside',
      title,
      words: 'The original files are kept.',
      command: 'tagferry logs --event store.corrupt',
    });
  }
  return found;
}

function sessionFailures({ session }: StatusReport): Failure[] {
  const { last_error: error } = session;
  if (session.usable || !error) return [];
  const hint = error.hint ? { hint: error.hint } : {};
  const isUnavailable = noTokenState(error.code) === 'platform unavailable';
  const title = isUnavailable ? 'No session, because the platform is unavailable' : 'Signed out';
  return [{ id: 'session', title, words: error.message, ...hint, command: 'tagferry session renew' }];
}

/** Returns advice for the status code with which the platform rejects every post. */
function adviceOf(code: string): Pick<Failure, 'hint' | 'command'> {
  if (code === '401')
    return { hint: 'If this does not help, check API_KEY_HEADER and PLATFORM_URL.', command: 'tagferry session renew' };
  if (code === '402') return { hint: 'Run this command after buying more calls.', command: 'tagferry session renew' };
  if (code === '403' || code === '404') {
    return {
      hint: 'Check VALUES_PATH, the numbers in tags.yaml, and the permissions of the technical user.',
      command: 'tagferry doctor',
    };
  }
  return { hint: 'Correct tags.yaml, then reload.', command: 'tagferry reload' };
}

function platformFailures({ state, uplink }: StatusReport): Failure[] {
  const { away, resting, waiting_series: waiting } = uplink;
  const found: Failure[] = [];
  if (away) {
    const since = durationText(away.since_seconds);
    const next = `${counted(away.attempts, 'attempt')} so far, next in ${durationText(away.next_try_in_seconds)}.`;
    const isRefused = state === 'posts rejected' || state === 'quota used up';
    const advice = isRefused
      ? adviceOf(away.code)
      : { hint: `${next} Values remain in the buffer.`, command: 'tagferry doctor' };
    const title = isRefused
      ? `The platform has rejected posts for ${since}`
      : `The platform has been unavailable for ${since}`;
    found.push({ id: 'away', title, words: away.message, ...advice });
  }
  if (resting) {
    const title = `Rate limited by the platform, posts paused for ${durationText(resting.for_seconds)}`;
    found.push({
      id: 'rest',
      title,
      words: '429 Too Many Requests',
      hint: 'To post now, run:',
      command: 'tagferry session renew',
    });
  }
  for (const series of waiting) {
    const name = [series.tag ?? `asset ${series.asset}`, series.key].filter((part) => part !== undefined).join(' ');
    const choice = series.tag === undefined ? `--asset ${series.asset}` : `--tag ${shellWord(series.tag)}`;
    const title = `${name} ${series.status === 0 ? 'not sent' : `rejected with ${series.status}`}`;
    const hint = 'Correct tags.yaml and reload, then requeue the rejected values.';
    const command = series.status === 0 ? {} : { hint, command: `tagferry buffer requeue ${choice}` };
    found.push({ id: `series ${series.series}`, title, words: series.message, ...command });
  }
  return found;
}

function holdFailures({ holds }: StatusReport): Failure[] {
  const waiting = holds.filter((hold) => hold.values_wait);
  const [first] = waiting;
  if (!first) return [];
  const title = `${counted(waiting.length, 'object')} held, values stay in the buffer`;
  const words = `${first.kind} ${first.id}: ${first.cause}`.replaceAll('_', ' ');
  const hint =
    first.cause === 'rejected'
      ? 'Correct the unit, key or asset in tags.yaml. The agent retries automatically.'
      : 'Grant can_read and can_update to the technical user. The agent retries automatically.';
  return [{ id: 'holds', title, words, hint, command: 'tagferry doctor' }];
}

function sourceFailures(now: StatusReport): Failure[] {
  return findings(now).map(({ event, subject, sentence, hint, command }) => ({
    id: `${event} ${subject}`,
    title: `The ${subject}`,
    words: sentence,
    ...(hint === null ? {} : { hint }),
    command,
  }));
}

function listenerFailures({ listener }: StatusReport): Failure[] {
  if (listener.webhook_url === undefined || listener.webhook === undefined) return [];
  if (listener.registered !== undefined && listener.disabled_by !== null) {
    const words =
      listener.disabled_by === 'command' ? 'Disabled by `tagferry webhook disable`.' : 'Disabled by the platform.';
    const hint = 'The agent still reads events from the deliveries list.';
    return [{ id: 'webhook', title: 'The webhook is disabled', words, hint, command: 'tagferry webhook enable' }];
  }
  if (listener.registered !== undefined && listener.failing) {
    const words = `The platform will disable the webhook in ${counted(listener.failing.days_left, 'day')}.`;
    const command = 'tagferry webhook deliveries --status failed';
    return [{ id: 'webhook', title: 'Webhook deliveries are failing', words, command }];
  }
  if (listener.registered !== undefined && listener.secret_known) return [];
  const title = listener.registered === undefined ? 'The webhook is not registered' : 'The webhook secret is unknown';
  return [{ id: 'webhook', title, words: listener.webhook_url, command: 'tagferry webhook ls' }];
}

function eventFailures({ events }: StatusReport): Failure[] {
  return events
    .filter(({ state }) => state === 'failed' || state === 'dead')
    .map((event) => ({
      id: `event ${event.id}`,
      title: `A reaction to event ${countText(event.id)} failed`,
      words: event.event_type,
      hint: 'Fix the cause, then replay the event.',
      command: `tagferry events replay ${event.id}`,
    }));
}
