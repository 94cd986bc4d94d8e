import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { isServiceFolder } from '../service-folder.ts';
import { isServiceView, runInServiceView, wantsServiceView } from '../service-view.ts';
import { checkCertificates } from './certificates.ts';
import { checkConfigurationFiles } from './configuration.ts';
import { checkDevices } from './devices.ts';
import { type Check, type CheckLine, type Consultation, failure, warning } from './finding.ts';
import { checkIdentity } from './identity.ts';
import { checkListeners, withOwnPorts } from './listeners.ts';
import { checkClock } from './machine-clock.ts';
import { checkNetwork } from './network.ts';
import { checkPlatform } from './platform.ts';
import { checkService } from './service.ts';
import { checkStateFolder } from './state-folder.ts';

/** In this order: what fails early explains what fails later. */
const CHECKS: readonly [name: string, check: Check][] = [
  ['eyes', () => []],
  ['configuration', checkConfigurationFiles],
  ['state', checkStateFolder],
  ['clock', checkClock],
  ['service', checkService],
  ['listener', checkListeners],
  ['certificates', checkCertificates],
  ['identity', checkIdentity],
  ['network', checkNetwork],
  ['platform', checkPlatform],
  ['devices', checkDevices],
];

/** What is looked at on this machine alone; of devices it is said what the running daemon knows. */
export const INWARD_STEPS = ['eyes', 'configuration', 'state', 'clock', 'service', 'listener', 'devices'];

/** What the files name on the platform. */
export const FILE_STEPS = ['network', 'platform'];

/** Nothing that the service's eyes see better. */
const OF_THE_MACHINE: ReadonlySet<string> = new Set(['clock', 'service']);

/**
 * Runs the steps, or those named, and gives their lines by the name of the step; `say` gets them as they come. Where this is the service's
 * folder and the user may, with the service's eyes.
 */
export async function runSteps(
  consultation: Consultation,
  say: (lines: readonly CheckLine[]) => void = () => {},
  only?: readonly string[],
): Promise<Record<string, CheckLine[]>> {
  const isView = isServiceView(consultation.environment);
  const steps: Record<string, CheckLine[]> = {};
  if (isUnconfigured(consultation)) {
    const missing = `not configured: PLATFORM_URL has no value in ${consultation.directory}/agent.env`;
    steps.configuration = [failure('configuration', missing, `Run \`${setupCommand(consultation.directory)}\`.`)];
    say(steps.configuration);
    return steps;
  }
  const seen = wantsServiceView(consultation.directory, process.env) ? await seenByService(consultation) : undefined;
  for (const [name, check] of CHECKS) {
    if ((isView && OF_THE_MACHINE.has(name)) || only?.includes(name) === false) continue;
    const own = () => runCheck(name, () => check(consultation));
    const found = seen?.[name] ?? (await own());
    // The service view cannot see which ports the running service already has.
    const needsOwn = name === 'listener' && seen !== undefined && found.some(({ state }) => state === 'failure');
    steps[name] = needsOwn ? withOwnPorts(found, await own()) : found;
    if (steps[name].length > 0) say(steps[name]);
  }
  return steps;
}

/** Whatever else fails then fails for this reason. */
function isUnconfigured({ daemon, daemonTrouble, service, place }: Consultation): boolean {
  if (daemon || daemonTrouble !== undefined || !place.unconfigured) return false;
  return service === undefined || service.state === 'not configured';
}

function setupCommand(directory: string): string {
  return isServiceFolder(directory) ? 'sudo tagferry setup' : `tagferry setup --config ${directory}`;
}

/**
 * The steps as the service itself would meet them, by name: whether it can read, write, listen and connect. What is about the machine
 * and the unit is asked from here.
 */
async function seenByService({ directory, subject }: Consultation): Promise<Record<string, CheckLine[]>> {
  const files = subject === 'files' ? ['--files'] : [];
  const seen = await runInServiceView(['doctor', '--json', ...files], directory);
  try {
    return JSON.parse(seen!.stdout) as Record<string, CheckLine[]>;
  } catch {
    const message =
      "this could not be looked at with the service's eyes (systemd-run did not answer), only with root's";
    const line = warning(
      'service.eyes',
      message,
      'What root may read, the service may not: check owners and modes by hand.',
    );
    return { eyes: [line] };
  }
}

/** A check that breaks is a failure of its own, and the others go on. */
async function runCheck(name: string, check: () => Promise<CheckLine[]> | CheckLine[]): Promise<CheckLine[]> {
  try {
    return await check();
  } catch (error) {
    return [
      failure(name, `this check broke: ${plain(messageOf(error))}`, 'Tell support, with `tagferry doctor --bundle`.'),
    ];
  }
}
