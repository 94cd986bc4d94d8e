import { outputOf } from '../program-output.ts';
import { UNIT } from '../service-unit.ts';

/** Enables the service, which the package leaves to setup: before it is configured it could only fail. Returns the command that applies what was written. */
export async function serviceStart(): Promise<string> {
  const isEnabled = (await outputOf('systemctl', ['enable', '--quiet', UNIT])) !== undefined;
  const text = await outputOf('systemctl', ['show', '--property=LoadState,ActiveState', UNIT]);
  const unit = Object.fromEntries((text ?? '').split('\n').map((line) => line.split('=')));
  if (unit.LoadState === 'masked') return 'sudo systemctl unmask tagferry && sudo systemctl enable --now tagferry';
  // A credential is handed over at a start alone, so a reload is not enough for a service that runs.
  if (['active', 'reloading', 'activating'].includes(unit.ActiveState)) return 'sudo systemctl restart tagferry';
  return isEnabled ? 'sudo systemctl start tagferry' : 'sudo systemctl enable --now tagferry';
}
