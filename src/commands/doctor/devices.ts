import { statSync } from 'node:fs';
import { counted, durationText } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import type { Source } from '../../config/tags.ts';
import { sourceFindings } from '../../ops/findings.ts';
import { Folders, folderProblem } from '../../sources/csv/folders.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { missingText, type SourceReport } from '../../sources/status.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';
import { connectError } from './network.ts';

const TIMEOUT_MS = 3_000;
const CONCURRENCY = 8;

/**
 * Checks the brokers and devices in tags.yaml. Uses the running agent's report. If no agent is running, tests whether
 * they accept connections. Skips devices that accept only one connection, because the agent needs that connection.
 */
export async function checkDevices({ configuration, agent }: DoctorContext): Promise<CheckLine[]> {
  if (agent?.sources) return agent.sources.flatMap(linesOfSource);
  const sources = [...(configuration?.tags.sources.values() ?? [])];
  const lines: CheckLine[] = [];
  for (let from = 0; from < sources.length; from += CONCURRENCY) {
    const checked = await Promise.all(sources.slice(from, from + CONCURRENCY).map(checkOne));
    lines.push(...checked.filter((line) => line !== undefined));
  }
  return lines;
}

function linesOfSource(source: SourceReport): CheckLine[] {
  const { name, kind, values, missing, last_value_seconds_ago: last } = source;
  const check = SOURCE_KINDS.find((one) => one.kind === kind)?.publishes ? 'broker' : kind;
  const found = sourceFindings(source);
  const lines = found.map(({ severity, sentence, hint, command }) => {
    const line = severity === 'error' ? failure : warning;
    return line(check, `${name}: ${sentence}`, hint ?? `Run \`${command}\` to read each value.`);
  });
  const hasFailed = found.some(({ severity }) => severity === 'error');
  // Overdue values are one of the findings.
  if (found.length === 0 || (missing?.overdue === false && !hasFailed)) {
    const latest = last === null ? 'none received yet' : `latest received ${durationText(last)} ago`;
    const words =
      missing === null
        ? `${counted(values, 'configured value')}, ${latest}`
        : `${missingText(missing)}, for ${durationText(missing.since_seconds)}`;
    lines.push(ok(check, `${name}: ${words}`));
  }
  return lines;
}

async function checkOne({ kind, name, spec }: Source): Promise<CheckLine | undefined> {
  const { placeOf, publishes, missing } = SOURCE_KINDS.find((one) => one.kind === kind) ?? {};
  const check = publishes ? 'broker' : kind;
  const missingPart = missing?.();
  if (missingPart !== undefined) return failure(check, `${name}: ${missingPart.problem}`, `${missingPart.hint}.`);
  const place = placeOf?.(spec);
  if (place === undefined) return undefined;
  if ('device' in place) return checkDeviceFile(check, name, place.device);
  if ('folder' in place) return checkFolder(check, name, place.folder, place.isWritten);
  const { host, port } = place;
  const trouble = await connectError(host, port, TIMEOUT_MS);
  if (trouble === undefined) return ok(check, `${name} accepts connections at ${host} port ${port}`);
  const next = publishes
    ? "Check the broker's address and the firewall, and make sure that the broker is running. Messages that it queues for the agent are not lost."
    : "Check the device's address, power and cable. Many devices accept only a few connections.";
  return failure(check, `${name} does not accept connections at ${host} port ${port} (${trouble})`, next);
}

/** Checks only that the device exists. The running service reports whether it can open the device. */
function checkDeviceFile(check: string, name: string, device: string): CheckLine {
  const found = statSync(device, { throwIfNoEntry: false });
  if (found?.isCharacterDevice()) return ok(check, `${name}: ${device} exists`);
  const message = found ? `${name}: ${device} is not a device file` : `${name}: ${device} does not exist`;
  const next = 'Plug in the adapter. `ls -l /dev/serial/by-id/` lists connected adapters by stable names.';
  return failure(check, message, next);
}

/** The doctor runs as the service if possible, so this check has the service's access rights. */
async function checkFolder(check: string, name: string, path: string, isWritten: boolean): Promise<CheckLine> {
  const folder = new Folders(systemClock).open(path, new AbortController().signal);
  try {
    const { readOnly } = await folder.call('list', '', '');
    if (!isWritten || readOnly === undefined) {
      return ok(check, `${name}: ${path} can be ${isWritten ? 'read and written' : 'read'}`);
    }
    return folderFailure(check, name, path, readOnly);
  } catch (error) {
    return folderFailure(check, name, path, error);
  } finally {
    folder.close();
  }
}

function folderFailure(check: string, name: string, path: string, error: unknown): CheckLine {
  const { problem, hint = 'Check its owner and permissions.' } = folderProblem(path, error);
  return failure(check, `${name}: ${problem}`, hint);
}
