import { messageOf } from '../../base/errors.ts';
import { plain } from '../../base/foreign-text.ts';
import { isServiceView, runInServiceView, wantsServiceView } from '../service-view.ts';
import { checkConfigurationFiles } from './configuration.ts';
import { checkDevices } from './devices.ts';
import { type Check, type CheckLine, type Consultation, failure, warning } from './finding.ts';
import { checkListeners } from './listeners.ts';
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
  ['network', checkNetwork],
  ['platform', checkPlatform],
  ['devices', checkDevices],
];

/** What is looked at on this machine alone; of devices it is said what the running daemon knows. */
export const INWARD_STEPS = ['eyes', 'configuration', 'state', 'clock', 'service', 'listener', 'devices'];

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
  const seen = wantsServiceView(consultation.directory, process.env) ? await seenByService(consultation) : undefined;
  const steps: Record<string, CheckLine[]> = {};
  for (const [name, check] of CHECKS) {
    if ((isView && OF_THE_MACHINE.has(name)) || only?.includes(name) === false) continue;
    steps[name] = seen?.[name] ?? (await runCheck(name, () => check(consultation)));
    if (steps[name].length > 0) say(steps[name]);
  }
  return steps;
}

/**
 * The steps as the service itself would meet them, by name: whether it can read, write, listen and connect. What is about the machine
 * and the unit is asked from here.
 */
async function seenByService({ directory }: Consultation): Promise<Record<string, CheckLine[]>> {
  const seen = await runInServiceView(['doctor', '--json'], directory);
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
