import { outputOf } from '../program-output.ts';
import { UNIT } from '../service-unit.ts';

/**
 * Enables the service, which the package leaves to us: before it is configured it could only fail at a boot. Gives the command that puts
 * in force what was written.
 */
export async function serviceStart(): Promise<string> {
  const enabled = await outputOf('systemctl', ['enable', '--quiet', UNIT]);
  const state = (await outputOf('systemctl', ['show', '--value', '--property=ActiveState', UNIT]))?.trim();
  // A credential is handed over at a start alone, so a reload is not enough for a service that runs.
  const isUp = state === 'active' || state === 'reloading' || state === 'activating';
  if (isUp) return 'sudo systemctl restart tagferry';
  return enabled === undefined ? 'sudo systemctl enable --now tagferry' : 'sudo systemctl start tagferry';
}
