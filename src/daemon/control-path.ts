import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** Where the control socket stands: systemd makes the runtime folder for the service; elsewhere it is beside the state. */
export function controlPath(environment: NodeJS.ProcessEnv, stateDir: string): string {
  const runtime = environment.RUNTIME_DIRECTORY?.split(':')[0];
  return join(runtime && existsSync(runtime) ? runtime : stateDir, 'control.sock');
}
