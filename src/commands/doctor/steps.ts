import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { conflictWords } from '../../base/identity-conflicts.ts';
import { isServiceFolder } from '../service/service-folder.ts';
import { isServiceView, needsServiceView, runAsService } from '../service/service-view.ts';
import { checkConfigurationFiles } from './configuration.ts';
import { type Check, type CheckLine, type DoctorContext, failure, warning } from './context.ts';
import { checkDevices } from './devices.ts';
import { checkCertificates, checkClock, checkListeners, withOwnPorts } from './machine.ts';
import { checkNetwork } from './network.ts';
import { checkPlatform } from './platform.ts';
import { checkService } from './service.ts';
import { checkStateFolder } from './state-folder.ts';

/** The order matters, because earlier failures explain later ones. */
const CHECKS: readonly [name: string, check: Check][] = [
  ['view', () => []],
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

/** Checks that do not contact other machines. Devices are checked using the running agent's report. */
export const INWARD_STEPS = ['view', 'configuration', 'state', 'clock', 'service', 'listener', 'devices'];

/** Checks that look up the configured objects on the platform. */
export const FILE_STEPS = ['network', 'platform'];

/** Steps that do not depend on the service's access rights. */
const OF_THE_MACHINE: ReadonlySet<string> = new Set(['clock', 'service']);

/**
 * Runs all steps, or those in `only`. If the user is root and the folder belongs to the service, runs the steps as the
 * service. Returns the results by step; `say` is called with the results of each step.
 */
export async function runSteps(
  context: DoctorContext,
  say: (lines: readonly CheckLine[]) => void = () => {},
  only?: readonly string[],
): Promise<Record<string, CheckLine[]>> {
  const isView = isServiceView(context.environment);
  const steps: Record<string, CheckLine[]> = {};
  if (isUnconfigured(context)) {
    const missing = `not configured: PLATFORM_URL is not set in ${context.directory}/agent.env`;
    steps.configuration = [failure('configuration', missing, `Run \`${setupCommand(context.directory)}\`.`)];
    say(steps.configuration);
    return steps;
  }
  const seen = needsServiceView(context.directory, process.env) ? await stepsAsService(context) : undefined;
  for (const [name, check] of CHECKS) {
    if ((isView && OF_THE_MACHINE.has(name)) || only?.includes(name) === false) continue;
    const own = () => runCheck(name, () => check(context));
    const found = seen?.[name] ?? (await own());
    // A check that runs as the service cannot determine which ports the running service uses.
    const needsOwn = name === 'listener' && seen !== undefined && found.some(({ state }) => state === 'failure');
    steps[name] = needsOwn ? withOwnPorts(found, await own()) : found;
    if (steps[name].length > 0) say(steps[name]);
  }
  return steps;
}

/** Returns whether the configuration is missing, which would make all other checks fail. */
function isUnconfigured({ agent, agentError, service, place }: DoctorContext): boolean {
  if (agent || agentError !== undefined || !place.unconfigured) return false;
  return service === undefined || service.state === 'not configured';
}

function setupCommand(directory: string): string {
  return isServiceFolder(directory) ? 'sudo tagferry setup' : `tagferry setup --config ${directory}`;
}

/** Runs the steps as the service, with its access to files, ports and network. */
async function stepsAsService({ directory, subject }: DoctorContext): Promise<Record<string, CheckLine[]>> {
  const files = subject === 'files' ? ['--files'] : [];
  const seen = await runAsService(['doctor', '--json', ...files], directory);
  try {
    return JSON.parse(seen!.stdout) as Record<string, CheckLine[]>;
  } catch {
    const message = 'cannot run the checks as the service (systemd-run failed), running them as root';
    const line = warning(
      'service.eyes',
      message,
      'Check owners and modes manually, because the service cannot access everything that root can.',
    );
    return { view: [line] };
  }
}

/** Reports an exception as a failure and continues. */
async function runCheck(name: string, check: () => Promise<CheckLine[]> | CheckLine[]): Promise<CheckLine[]> {
  try {
    return await check();
  } catch (error) {
    return [
      failure(
        name,
        `internal error in this check: ${plain(messageOf(error))}`,
        'Send the output of `tagferry doctor --bundle` to support.',
      ),
    ];
  }
}

/** Reports signs of another agent with the same identity that the running agent has detected. */
function checkIdentity({ agent }: DoctorContext): CheckLine[] {
  return (agent?.identity_conflicts ?? []).map(({ kind, source }) => {
    const { what, hint } = conflictWords(kind, source === null ? null : plain(source));
    return failure('identity', what, hint);
  });
}
