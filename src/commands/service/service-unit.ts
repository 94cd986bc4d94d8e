import { uptime } from 'node:os';
import { resolve } from 'node:path';
import { counted, durationText } from '../../base/amounts.ts';
import { plain } from '../../base/foreign-text.ts';
import { markDescription } from '../../store/decommission-mark.ts';
import { type LogLine, readEntry } from '../logs/log-line.ts';
import { outputOf } from './service-folder.ts';

/**
 * The agent's systemd unit. `status` and `doctor` both read its properties and recommended commands here and therefore
 * agree.
 */

export const UNIT = 'tagferry.service';
const PROPERTIES = [
  'LoadState',
  'ActiveState',
  'SubState',
  'UnitFileState',
  'Result',
  'ExecMainCode',
  'ExecMainStatus',
  'ExecMainStartTimestampMonotonic',
  'MainPID',
  'NRestarts',
  'InvocationID',
  'Environment',
  'MemoryHigh',
  'MemoryMax',
] as const;
/** Minimum uptime after an automatic restart before a service is considered recovered, in seconds. */
const SETTLED_S = 120;
/**
 * EX_CONFIG in sysexits.h: the agent's exit status if its configuration is unusable. The unit does not restart the
 * agent after this status.
 */
const EX_CONFIG = '78';

export type Unit = Readonly<Partial<Record<(typeof PROPERTIES)[number], string>>>;

type KnownState =
  | 'not configured'
  | 'masked'
  | 'invalid'
  | 'rejected'
  | 'failed'
  | 'restarting'
  | 'starting'
  | 'stopping'
  | 'stopped'
  | 'disabled'
  | 'active';

type ServiceState = KnownState | 'decommissioned';

export interface ServiceCondition {
  state: ServiceState;
  /** Text without a full stop. */
  message: string;
  /** Failure that caused this state; `undefined` if there is none or this user cannot read the journal. */
  failure: ServiceFailure | undefined;
  /** Recommended action if no agent responds. */
  next: string;
  unit: Unit;
}

export interface ServiceFiles {
  directory: string;
  stateDir: string;
  /** Whether no file contains the platform address. */
  unconfigured: boolean;
}

/**
 * Reads the unit's state. Returns `undefined` if systemd or the unit is missing, or if the unit uses a different
 * configuration folder.
 */
export async function serviceCondition(files: ServiceFiles): Promise<ServiceCondition | undefined> {
  const unit = await readUnit();
  if (!unit || folderOf(unit) !== resolve(files.directory)) return undefined;
  const mark = markDescription(files.stateDir);
  if (mark && !isUp(unit)) {
    return { state: 'decommissioned', message: mark.what, failure: undefined, next: `${sentence(mark.next)}.`, unit };
  }
  const first = stateOf(unit, files);
  const { failure, restarted } = await endOf(unit, first);
  // The counter includes restarts before a manual start.
  const isByHand = first === 'restarting' && restarted === false;
  const state = isByHand ? stateOf({ ...unit, NRestarts: '0' }, files) : first;
  return {
    state,
    message: messageFor(state, unit),
    failure: isByHand ? undefined : failure,
    next: nextFor(state, failure),
    unit,
  };
}

const isUp = ({ ActiveState }: Unit) => ActiveState === 'active' || ActiveState === 'reloading';
const sentence = (text: string) => text.replace(/^./, (first) => first.toUpperCase());

async function readUnit(): Promise<Unit | undefined> {
  const text = await outputOf('systemctl', ['show', UNIT, `--property=${PROPERTIES.join(',')}`]);
  if (text === undefined) return undefined;
  const unit: Unit = Object.fromEntries(text.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
  return unit.LoadState === undefined || unit.LoadState === 'not-found' ? undefined : unit;
}

/** Returns the service's configuration folder. A masked unit does not have an environment. */
function folderOf({ Environment = '' }: Unit): string {
  return resolve(/(?:^|\s)TAGFERRY_CONFIG=(\S+)/.exec(Environment)?.[1] ?? '/etc/tagferry');
}

function stateOf(unit: Unit, { unconfigured }: ServiceFiles): KnownState {
  const { LoadState, ActiveState, SubState, UnitFileState, ExecMainStatus, Environment = '' } = unit;
  if (unconfigured && !isUp(unit) && !Environment.includes('PLATFORM_URL')) return 'not configured';
  if (LoadState === 'masked') return 'masked';
  if (LoadState !== 'loaded') return 'invalid';
  if (isUp(unit)) return restartsOf(unit) > 0 && secondsRunning(unit) < SETTLED_S ? 'restarting' : 'active';
  if (ActiveState === 'deactivating') return 'stopping';
  if (ActiveState === 'activating') {
    return SubState?.startsWith('auto-restart') || restartsOf(unit) > 0 ? 'restarting' : 'starting';
  }
  if (ActiveState === 'failed') return ExecMainStatus === EX_CONFIG ? 'rejected' : 'failed';
  return UnitFileState === 'disabled' ? 'disabled' : 'stopped';
}

/** Returns how the latest run ended, or how the run before an automatic restart ended. */
async function endOf(unit: Unit, state: KnownState): Promise<EndedRun> {
  const { InvocationID: invocation = '', SubState } = unit;
  if (state === 'rejected' || state === 'failed') return readEndedRun(UNIT, invocation, 'this');
  if (state !== 'restarting') return { failure: undefined, restarted: undefined };
  if (!SubState?.startsWith('auto-restart')) return readEndedRun(UNIT, invocation, 'previous');
  return { ...(await readEndedRun(UNIT, invocation, 'this')), restarted: true };
}

export const restartsOf = ({ NRestarts }: Unit) => Number(NRestarts ?? 0);

/** Uses the machine's uptime, as systemd does. */
function secondsRunning({ ExecMainStartTimestampMonotonic }: Unit): number {
  const startedUs = Number(ExecMainStartTimestampMonotonic ?? Number.NaN);
  return startedUs > 0 ? uptime() - startedUs / 1e6 : Number.POSITIVE_INFINITY;
}

function messageFor(state: KnownState, unit: Unit): string {
  const restarts = counted(restartsOf(unit), 'restart');
  const texts: Readonly<Record<KnownState, string>> = {
    'not configured': 'tagferry is not configured',
    masked: `${UNIT} is masked and cannot start`,
    invalid: `${UNIT} cannot be loaded (${unit.LoadState})`,
    rejected: `${UNIT} failed, configuration rejected`,
    failed: `${UNIT} failed (${resultText(unit)})`,
    restarting: isUp(unit)
      ? `${UNIT} failed and was restarted ${durationText(secondsRunning(unit))} ago (${restarts})`
      : `${UNIT} keeps failing and is restarted by systemd${restartsOf(unit) > 0 ? ` (${restarts} so far)` : ''}`,
    starting: `${UNIT} is starting`,
    stopping: `${UNIT} is stopping`,
    stopped: `${UNIT} is stopped`,
    disabled: `${UNIT} is stopped, and disabled at boot`,
    active: `${UNIT} is active`,
  };
  return texts[state];
}

function resultText({ Result, ExecMainStatus }: Unit): string {
  if (Result === 'exit-code') return `exit status ${ExecMainStatus}`;
  return Result === 'signal' ? `killed by signal ${ExecMainStatus}` : `result ${Result}`;
}

const START = '`sudo systemctl start tagferry`';

function nextFor(state: KnownState, failure: ServiceFailure | undefined): string {
  // Only root and some groups may read the journal.
  const inspect = process.getuid?.() === 0 ? 'Run `journalctl -u tagferry -n 50`.' : 'Run `sudo tagferry doctor`.';
  const fix = failure?.hint ?? inspect;
  const texts: Readonly<Record<KnownState, string>> = {
    'not configured': 'Run `sudo tagferry setup`.',
    masked: 'Run `sudo systemctl unmask tagferry && sudo systemctl enable --now tagferry`.',
    invalid: 'Run `systemd-analyze verify tagferry.service`.',
    rejected: `Run \`sudo tagferry check\`, correct the files, then run ${START}.`,
    failed: `${fix} Then run ${START}.`,
    restarting: fix,
    starting: 'Run this command again in a moment. `systemctl status tagferry` shows the progress.',
    stopping: 'Run this command again in a moment.',
    stopped: `Run ${START}.`,
    disabled: 'Run `sudo systemctl enable --now tagferry`.',
    active: 'Run `sudo systemctl restart tagferry`.',
  };
  return texts[state];
}

const MAX_ENTRIES = 500;
const MAX_SHOWN = 300;

/** The error that ended a service run. */
interface ServiceFailure {
  text: string;
  /** The agent's hint, as a sentence. */
  hint?: string;
}

/** How a service run ended, according to the journal. */
interface EndedRun {
  /** `undefined` if the run ended without a logged error. */
  failure: ServiceFailure | undefined;
  /** Whether systemd scheduled a restart after the run; `undefined` if the journal does not contain the run. */
  restarted: boolean | undefined;
}

/** MESSAGE_ID of systemd: "Scheduled restart job" (sd-messages.h). */
const RESTART_SCHEDULED = '5eb03494b6584870a536b337290809b3';
const FIELDS = ['MESSAGE', 'PRIORITY', 'SYSLOG_IDENTIFIER', 'MESSAGE_ID', '_SYSTEMD_INVOCATION_ID'];

interface Entry {
  line: LogLine;
  messageId: unknown;
  /** Service run that wrote the entry; `undefined` for systemd entries about the unit. */
  run: unknown;
}

/**
 * Reads how a service run ended: the run with this invocation ID, or the one before it. Members are `undefined` if this
 * user cannot read the journal.
 */
async function readEndedRun(unit: string, invocation: string, which: 'this' | 'previous'): Promise<EndedRun> {
  const fields = `--output-fields=${FIELDS.join(',')}`;
  const args = ['-u', unit, '-n', String(MAX_ENTRIES), '-o', 'json', '--all', '--no-pager', '-q', fields];
  const text = await outputOf('journalctl', args);
  const entries = (text ?? '').split('\n').flatMap(entryOf);
  // The run with this ID may have ended in the meantime, and other runs may have followed.
  const start = entries.findIndex(({ run }) => run === invocation);
  const before = which === 'this' || start === -1 ? entries : entries.slice(0, start);
  const end = before.findLastIndex(({ run }) => run !== undefined && (which === 'previous' || run === invocation));
  if (end === -1) return { failure: undefined, restarted: undefined };
  const final = before.findLast((entry) => entry.run === before[end]!.run && isFinal(entry.line));
  const restarted = before.slice(end).some(({ messageId }) => messageId === RESTART_SCHEDULED);
  return { failure: final && failureIn(final.line), restarted };
}

function entryOf(text: string): Entry[] {
  const found = readEntry(text);
  if (!found) return [];
  const { MESSAGE_ID: messageId, _SYSTEMD_INVOCATION_ID: run } = JSON.parse(text) as Record<string, unknown>;
  return [{ line: found.line, messageId, run }];
}

/**
 * Returns whether the entry is final: an agent event at level fatal, or text at level error. Programs that run before
 * the agent write such text.
 */
function isFinal({ level, event }: LogLine): boolean {
  return level === 'fatal' || (level === 'error' && event === undefined);
}

function failureIn({ msg, error, hint }: LogLine): ServiceFailure {
  const what = [error, msg].find((part) => typeof part === 'string' && part !== '') ?? 'unknown error';
  const text = plain(String(what));
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return typeof hint === 'string' ? { text: shown, hint: plain(hint) } : { text: shown };
}
