import type { Clock } from '../../base/clock.ts';
import type { Configuration } from '../../config/configuration.ts';
import type { Problem } from '../../config/problem.ts';
import type { ReadSettings } from '../../config/read-settings.ts';
import type { StatusReport } from '../../ops/status-report.ts';
import type { DaemonPlace } from '../control-client.ts';
import type { ServiceCondition } from '../service-unit.ts';

/** One line of the doctor's. Nothing secret may stand in it: it is mailed to support. */
export interface CheckLine {
  /** Stable from release to release. */
  check: string;
  state: 'ok' | 'warning' | 'failure';
  message: string;
  /** What to do next; empty where all is well. */
  next: string;
}

export const ok = (check: string, message: string): CheckLine => ({ check, state: 'ok', message, next: '' });
export const warning = (check: string, message: string, next: string): CheckLine => ({
  check,
  state: 'warning',
  message,
  next,
});
export const failure = (check: string, message: string, next: string): CheckLine => ({
  check,
  state: 'failure',
  message,
  next,
});

/** The files on disk alone, or the running agent as well. */
export type Subject = 'files' | 'agent';

/** What every check may look at. Earlier checks leave what later ones need. */
export interface Consultation {
  subject: Subject;
  directory: string;
  environment: NodeJS.ProcessEnv;
  clock: Clock;
  version: string;
  place: DaemonPlace;
  settings: ReadSettings;
  problems: readonly Problem[];
  /** Parts of the configuration that this user cannot read. */
  unread: readonly string[];
  configuration: Configuration | undefined;
  /** What the running daemon says; `undefined` where none answers. */
  daemon: StatusReport | undefined;
  /** Why the daemon could not be asked, where it is not just absent. */
  daemonTrouble: { text: string; next: string } | undefined;
  /** The systemd unit; `undefined` if systemd does not run an agent with this configuration. */
  service: ServiceCondition | undefined;
  /** This process looks with the service's eyes: what it may not, the service may not. */
  isService: boolean;
  /** Left by the network check: whether the platform answers HTTP at all. */
  platformAnswers: boolean;
}

/** One step: its lines. It never throws for what it looks at; what it throws is a fault of ours and becomes a line. */
export type Check = (consultation: Consultation) => Promise<CheckLine[]> | CheckLine[];
