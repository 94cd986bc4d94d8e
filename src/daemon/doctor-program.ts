import { execFile } from 'node:child_process';
import { TagferryError } from '../base/errors.ts';
import type { DoctorLine } from '../ops/live/doctor-run.ts';

const PATIENCE_MS = 60_000;
const MAX_OUTPUT = 1024 * 1024;
/** Of the service manager's: they are for the daemon alone. */
const FOR_THE_DAEMON = ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID', 'LISTEN_FDS', 'LISTEN_PID'];

/**
 * `tagferry doctor --inward` of this same program, as a process of its own: what it loads and reads is gone with it, and the daemon
 * goes on meanwhile. It asks nobody outside this machine.
 */
export function runDoctor(directory: string | undefined, environment: NodeJS.ProcessEnv): Promise<DoctorLine[]> {
  const place = directory === undefined ? [] : ['--config', directory];
  const arguments_ = [...process.execArgv, process.argv[1]!, 'doctor', '--inward', '--json', ...place];
  const env = Object.fromEntries(Object.entries(environment).filter(([name]) => !FOR_THE_DAEMON.includes(name)));
  const options = { env, timeout: PATIENCE_MS, maxBuffer: MAX_OUTPUT, killSignal: 'SIGKILL' } as const;
  return new Promise((resolve, reject) => {
    // Exit status 1 says that it found a failure.
    execFile(process.execPath, arguments_, options, (error, stdout) => {
      try {
        resolve((JSON.parse(stdout) as { checks: DoctorLine[] }).checks);
      } catch (unreadable) {
        reject(new TagferryError('the doctor did not answer', { code: 'ops.doctor', cause: error ?? unreadable }));
      }
    });
  });
}
