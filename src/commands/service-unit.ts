/**
 * The systemd unit of the agent: one reading of its properties, and one table from its state to a sentence and the command that helps.
 * `status` and `doctor` both use it, so that they cannot disagree.
 */
import { uptime } from 'node:os';
import { resolve } from 'node:path';
import { counted, durationText } from '../base/amounts.ts';
import { markWords } from '../store/decommission-mark.ts';
import { outputOf } from './program-output.ts';
import { type EndedRun, endedRun, type ServiceFailure } from './service-failure.ts';

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
/** A service that systemd restarted less than this ago has not recovered yet. */
const SETTLED_S = 120;
/** sysexits.h: the agent exits with it if the configuration cannot work, and the unit does not restart it. */
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
  /** A sentence without a full stop. */
  message: string;
  /** The failure that led to this state; `undefined` if there is none or this user cannot read the journal. */
  failure: ServiceFailure | undefined;
  /** What to do if no agent responds. */
  next: string;
  unit: Unit;
}

/** What the files of a configuration tell about its service. */
export interface ServiceFiles {
  directory: string;
  stateDir: string;
  /** No file names the platform. */
  unconfigured: boolean;
}

/**
 * Reads the state of the unit. Returns `undefined` without systemd, without the unit, or if the unit runs with another configuration
 * folder.
 */
export async function serviceCondition(files: ServiceFiles): Promise<ServiceCondition | undefined> {
  const unit = await readUnit();
  if (!unit || folderOf(unit) !== resolve(files.directory)) return undefined;
  const mark = markWords(files.stateDir);
  if (mark && !isUp(unit)) {
    return { state: 'decommissioned', message: mark.what, failure: undefined, next: `${sentence(mark.next)}.`, unit };
  }
  const first = stateOf(unit, files);
  const { failure, restarted } = await endOf(unit, first);
  // The counter also counts restarts before a start by hand.
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

/** The configuration folder of the service; a masked unit shows no environment. */
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

/** How the run ended that explains the state: the latest run, or the run before an automatic restart. */
async function endOf(unit: Unit, state: KnownState): Promise<EndedRun> {
  const { InvocationID: invocation = '', SubState } = unit;
  if (state === 'rejected' || state === 'failed') return endedRun(UNIT, invocation, 'this');
  if (state !== 'restarting') return { failure: undefined, restarted: undefined };
  if (!SubState?.startsWith('auto-restart')) return endedRun(UNIT, invocation, 'previous');
  return { ...(await endedRun(UNIT, invocation, 'this')), restarted: true };
}

export const restartsOf = ({ NRestarts }: Unit) => Number(NRestarts ?? 0);

/** By the uptime of the machine, as systemd counts. */
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
      : `${UNIT} fails and is restarted by systemd${restartsOf(unit) > 0 ? ` (${restarts} so far)` : ''}`,
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
  const look = process.getuid?.() === 0 ? 'Run `journalctl -u tagferry -n 50`.' : 'Run `sudo tagferry doctor`.';
  const fix = failure?.hint ?? look;
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
