import { statSync } from 'node:fs';
import { counted, durationText } from '../../base/amounts.ts';
import { systemClock } from '../../base/clock.ts';
import { codeOf } from '../../base/errors.ts';
import type { Source } from '../../config/tags.ts';
import { FolderClient, folderProblem } from '../../sources/csv/folder-client.ts';
import { SOURCE_KINDS } from '../../sources/kinds.ts';
import { missingWords, type SourceReport } from '../../sources/source-report.ts';
import { type CheckLine, type Consultation, failure, ok, warning } from './finding.ts';
import { tcpTrouble } from './network.ts';

const PATIENCE_MS = 3_000;
/** Asked at once. */
const TOGETHER = 8;

/**
 * Brokers and devices of tags.yaml: what the running daemon says of them, else whether they take a connection from here. A device
 * that takes one connection is left to the daemon.
 */
export async function checkDevices({ configuration, daemon }: Consultation): Promise<CheckLine[]> {
  if (daemon?.sources) return daemon.sources.map(lineOfSource);
  const sources = [...(configuration?.tags.sources.values() ?? [])];
  const lines: CheckLine[] = [];
  for (let from = 0; from < sources.length; from += TOGETHER) {
    const checked = await Promise.all(sources.slice(from, from + TOGETHER).map(checkOne));
    lines.push(...checked.filter((line) => line !== undefined));
  }
  return lines;
}

function lineOfSource(source: SourceReport): CheckLine {
  const { name, kind, problem, hint, values, missing, silent, silent_seconds: seconds } = source;
  const check = SOURCE_KINDS.find((one) => one.kind === kind)?.publishes ? 'broker' : kind;
  const because = problem === null ? '' : `: ${problem}`;
  const next = hint ?? `tagferry sources test ${name} tries each of its values.`;
  if (silent) return failure(check, `${name} has given nothing for ${durationText(seconds)}${because}`, next);
  if (source.connected === false) return failure(check, `${name} is not connected${because}`, next);
  if (problem !== null) return warning(check, `${name} gives a part of its values${because}`, next);
  if (missing !== null) {
    const words = `${name}: ${missingWords(missing)}, for ${durationText(missing.since_seconds)}`;
    return missing.overdue ? warning(check, words, next) : ok(check, words);
  }
  return ok(check, `${name} is read: ${counted(values, 'value')}`);
}

async function checkOne({ kind, name, spec }: Source): Promise<CheckLine | undefined> {
  const { placeOf, publishes, missing } = SOURCE_KINDS.find((one) => one.kind === kind) ?? {};
  const check = publishes ? 'broker' : kind;
  const wanted = missing?.();
  if (wanted !== undefined) return failure(check, `${name}: ${wanted.problem}`, `${wanted.hint}.`);
  const place = placeOf?.(spec);
  if (place === undefined) return undefined;
  if ('device' in place) return checkDeviceFile(check, name, place.device);
  if ('folder' in place) return checkFolder(check, name, place.folder, place.isWritten);
  const { host, port } = place;
  const trouble = await tcpTrouble(host, port, PATIENCE_MS);
  if (trouble === undefined) return ok(check, `${name} takes connections at ${host} port ${port}`);
  const next = publishes
    ? 'Check address and firewall of the broker, and that it runs; values that it keeps for us are not lost.'
    : 'Check address, power and cable of the device; many take only a few connections at once.';
  return failure(check, `${name} takes no connection at ${host} port ${port} (${trouble})`, next);
}

/** Whether the service may open it is told by the service, which alone lives under its unit. */
function checkDeviceFile(check: string, name: string, device: string): CheckLine {
  const found = statSync(device, { throwIfNoEntry: false });
  if (found?.isCharacterDevice()) return ok(check, `${name}: ${device} is there`);
  const message = found ? `${name}: ${device} is no device` : `${name}: there is no ${device}`;
  const next = 'Plug the adapter in; `ls -l /dev/serial/by-id/` shows those that are there, by names that stay.';
  return failure(check, message, next);
}

/** Runs within the confinement of the service, as all checks of the doctor: access here is access of the service. */
async function checkFolder(check: string, name: string, path: string, isWritten: boolean): Promise<CheckLine> {
  const folder = new FolderClient(path, systemClock);
  try {
    const { readOnly } = await folder.list('', '');
    if (!isWritten || readOnly === undefined) {
      return ok(check, `${name}: ${path} can be ${isWritten ? 'read and written' : 'read'}`);
    }
    return folderFailure(check, name, path, readOnly);
  } catch (error) {
    return folderFailure(check, name, path, codeOf(error));
  } finally {
    folder.end();
  }
}

function folderFailure(check: string, name: string, path: string, code: string | undefined): CheckLine {
  const { problem, hint = 'Check its owner and permissions.' } = folderProblem(path, code);
  return failure(check, `${name}: ${problem}`, hint);
}
