/** What is wrong, in the platform's and the gateway's own words, and what mends it. Pure. */
import { counted, countText, durationText } from '../../base/amounts.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import { missingWords } from '../../sources/source-report.ts';

export interface Failure {
  /** Stays the same from second to second. */
  id: string;
  title: string;
  /** As it was said. */
  words: string;
  hint?: string;
  /** Ready to copy. */
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
    ...missingFailures(now),
    ...listenerFailures(now),
    ...eventFailures(now),
  ];
}

function configurationFailures({ configuration }: StatusReport): Failure[] {
  const found: Failure[] = [];
  const { refused, restart_needed: keys, changed_credentials: credentials } = configuration;
  if (refused) {
    const title = `The files are refused; those of before are in force`;
    found.push({ id: 'files', title, words: refused.problems.join('; '), command: 'tagferry check' });
  }
  const { changed_files: files } = configuration;
  if (files.length > 0) {
    const title = 'Files changed and not loaded';
    found.push({ id: 'changed files', title, words: files.join(', '), command: 'tagferry reload' });
  }
  const changed = [...keys, ...credentials.map((name) => `the credential ${name}`)];
  if (changed.length > 0) {
    const title = 'Changed, and not in force until a restart';
    found.push({ id: 'restart', title, words: changed.join(', '), command: 'systemctl restart tagferry' });
  }
  return found;
}

function bufferFailures({ buffer }: StatusReport): Failure[] {
  const found: Failure[] = buffer.problems.map((words) => ({
    id: `buffer ${words.slice(0, 40)}`,
    title: 'New values are refused',
    words,
    command: 'tagferry doctor',
  }));
  if (buffer.quarantined > 0) {
    const title = `${counted(buffer.quarantined, 'value')} in quarantine`;
    const words = 'The platform refused them alone; they are kept, and not sent again by themselves.';
    found.push({ id: 'quarantine', title, words, command: 'tagferry buffer quarantine' });
  }
  if (buffer.set_aside > 0) {
    const title = `${counted(buffer.set_aside, 'corrupt part')} of a store set aside`;
    found.push({
      id: 'set aside',
      title,
      words: 'It is kept byte for byte.',
      command: 'tagferry logs --event store.corrupt',
    });
  }
  return found;
}

function sessionFailures({ session }: StatusReport): Failure[] {
  const { last_error: error } = session;
  if (session.usable || !error) return [];
  const hint = error.hint ? { hint: error.hint } : {};
  return [{ id: 'session', title: 'Signed out', words: error.message, ...hint, command: 'tagferry session renew' }];
}

/** What helps where the platform refuses whatever is posted. */
function adviceOf(code: string): Pick<Failure, 'hint' | 'command'> {
  if (code === '401')
    return { hint: 'Where it stays so, check API_KEY_HEADER and PLATFORM_URL.', command: 'tagferry session renew' };
  if (code === '402') return { hint: 'Tries at once, when calls were bought.', command: 'tagferry session renew' };
  if (code === '403' || code === '404') {
    return {
      hint: 'Check VALUES_PATH, the numbers in tags.yaml, and what the technical user may see.',
      command: 'tagferry doctor',
    };
  }
  return { hint: 'Mend in tags.yaml what it names, then reload.', command: 'tagferry reload' };
}

function platformFailures({ state, uplink }: StatusReport): Failure[] {
  const { away, resting, waiting_series: waiting } = uplink;
  const found: Failure[] = [];
  if (away) {
    const since = durationText(away.since_seconds);
    const next = `Tried ${counted(away.attempts, 'time')}, next in ${durationText(away.next_try_in_seconds)}.`;
    const isRefused = state === 'posts refused' || state === 'quota spent';
    const advice = isRefused ? adviceOf(away.code) : { hint: `${next} Values are kept.`, command: 'tagferry doctor' };
    const title = isRefused ? `The platform refuses posts, for ${since}` : `The platform is away, for ${since}`;
    found.push({ id: 'away', title, words: away.message, ...advice });
  }
  if (resting) {
    const title = `The platform asked for a rest of ${durationText(resting.for_seconds)} more`;
    found.push({ id: 'rest', title, words: '429', hint: 'This ends it at once.', command: 'tagferry session renew' });
  }
  for (const series of waiting) {
    const name = [series.tag ?? `asset ${series.asset}`, series.key].filter((part) => part !== undefined).join(' ');
    const choice = series.tag === undefined ? `--asset ${series.asset}` : `--tag ${shellWord(series.tag)}`;
    const title = `${name} waits: ${series.status === 0 ? 'not sent' : `refused with ${series.status}`}`;
    const hint = 'Mend tags.yaml and reload, then send again what was refused.';
    const command = series.status === 0 ? {} : { hint, command: `tagferry buffer requeue ${choice}` };
    found.push({ id: `series ${series.series}`, title, words: series.message, ...command });
  }
  return found;
}

function holdFailures({ holds }: StatusReport): Failure[] {
  if (holds.length === 0) return [];
  const [first] = holds;
  const title = `${counted(holds.length, 'hold')}: values wait in the buffer`;
  const words = `${first!.kind} ${first!.id}: ${first!.cause}`.replaceAll('_', ' ');
  const hint = 'Give the technical user its permission on the platform; it is tried again by itself.';
  return [{ id: 'holds', title, words, hint, command: 'tagferry doctor' }];
}

function sourceFailures({ sources }: StatusReport): Failure[] {
  return sources
    .filter((source) => source.silent || source.connected === false)
    .map((source) => ({
      id: `source ${source.name}`,
      title: `The ${source.kind} source ${source.name} is ${source.connected === false ? 'not connected' : 'silent'}, for ${durationText(source.connected === false ? source.since_seconds : source.silent_seconds)}`,
      words: source.problem ?? 'nothing came for longer than it should',
      ...(source.hint ? { hint: source.hint } : {}),
      command: `tagferry sources test ${shellWord(source.name)}`,
    }));
}

function missingFailures({ sources }: StatusReport): Failure[] {
  return sources
    .filter((source) => !source.silent && source.connected !== false && source.missing?.overdue)
    .map((source) => ({
      id: `missing ${source.name}`,
      title: `Values of the ${source.kind} source ${source.name} have not arrived for ${durationText(source.missing!.since_seconds)}`,
      words: missingWords(source.missing!),
      command: `tagferry sources test ${shellWord(source.name)}`,
    }));
}

function listenerFailures({ listener }: StatusReport): Failure[] {
  if (listener.webhook_url === undefined || listener.webhook === undefined) return [];
  if (listener.registered !== undefined && listener.disabled_by !== null) {
    const words = listener.disabled_by === 'command' ? 'by `tagferry webhook disable`' : 'on the platform';
    const hint = 'Events are only read from the deliveries list.';
    return [{ id: 'webhook', title: 'The webhook is disabled', words, hint, command: 'tagferry webhook enable' }];
  }
  if (listener.registered !== undefined && listener.failing) {
    const words = `The platform disables the webhook in ${listener.failing.days_left} days.`;
    const command = 'tagferry webhook deliveries --status failed';
    return [{ id: 'webhook', title: 'Webhook deliveries keep failing', words, command }];
  }
  if (listener.registered !== undefined && listener.secret_known) return [];
  const title =
    listener.registered === undefined ? 'The webhook is not registered' : "The webhook's secret is not known";
  return [{ id: 'webhook', title, words: listener.webhook_url, command: 'tagferry webhook ls' }];
}

function eventFailures({ events }: StatusReport): Failure[] {
  return events
    .filter(({ state }) => state === 'failed' || state === 'dead')
    .map((event) => ({
      id: `event ${event.id}`,
      title: `A reaction to event ${countText(event.id)} failed`,
      words: event.event_type,
      hint: 'Mend what it calls, then run it again.',
      command: `tagferry events replay ${event.id}`,
    }));
}

/** One word to a shell, whatever stands in it: names come from files, and what is copied is run. */
function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
