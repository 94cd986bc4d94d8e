/** Checks the gateway's listeners, clock and certificates. */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { type CertificateInUse, endsSoon, expiryText, pemEndsMs } from '../../base/certificates.ts';
import { codeOf, messageOf } from '../../base/errors.ts';
import { type ListenAddress, listenHint } from '../../base/listen.ts';
import { formatListenAddress } from '../../base/listen-address.ts';
import { readRegularFileSync } from '../../base/regular-file.ts';
import { outputOf } from '../service/service-folder.ts';
import { type CheckLine, type DoctorContext, failure, ok, warning } from './context.ts';

/**
 * Checks whether the agent can listen on its addresses. Skipped while an agent is running, because the agent uses these
 * addresses.
 */
export async function checkListeners({
  settings,
  agent,
  agentError,
  isService,
  service,
}: DoctorContext): Promise<CheckLine[]> {
  if (agent || agentError !== undefined) return [];
  const lines: CheckLine[] = [];
  const running = agentProcesses(settings.stateDir, service?.unit.MainPID);
  for (const [key, address] of [
    ['INGEST_LISTEN', settings.ingestListen],
    ['WEBHOOK_LISTEN', settings.webhookListen],
    ['OPS_LISTEN', settings.opsListen],
  ] as const) {
    if (address && 'port' in address) lines.push(await checkOne(key, address, isService, running));
  }
  return lines;
}

/** Corrects the results from a check that ran as the service, because only root can see the running service's ports. */
export function withOwnPorts(seen: readonly CheckLine[], own: readonly CheckLine[]): CheckLine[] {
  return seen.map((line, at) => (own[at]?.message.includes(HELD) ? own[at] : line));
}

const HELD = 'is in use by tagferry itself';

async function checkOne(
  key: string,
  address: Extract<ListenAddress, { port: number }>,
  isService: boolean,
  running: readonly number[],
): Promise<CheckLine> {
  const place = formatListenAddress(address);
  const trouble = await listenError(address);
  if (trouble === undefined) return ok('listener', `${key} ${place} is free`);
  const holder = trouble === 'EADDRINUSE' ? running.find((pid) => listensOn(pid, address.port)) : undefined;
  // An agent that is waiting for its disk, or whose control socket is missing, already uses the port.
  if (holder !== undefined) return ok('listener', `${key} ${place} ${HELD} (process ${holder})`);
  const next =
    trouble === 'EACCES' && isService
      ? `Set ${key} to a port above 1023, or see CAP_NET_BIND_SERVICE in install.md.`
      : listenHint(trouble, key);
  return failure('listener', `${key} cannot listen on ${place} (${trouble})`, next);
}

function listenError({ host, port }: { host: string; port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve(codeOf(error) ?? messageOf(error)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** TCP_LISTEN from the kernel's tcp_states.h, in the notation of /proc/net/tcp. */
const LISTEN = '0A';

/** Returns the agent's process IDs from systemd and the pid file. */
function agentProcesses(stateDir: string, mainPid = ''): number[] {
  return [mainPid, textOf(join(stateDir, 'tagferry.pid'))]
    .map((text) => Number(text.trim()))
    .filter((pid) => Number.isSafeInteger(pid) && pid > 0);
}

/** Returns whether a process is listening on a port; also `false` if this user cannot read its open files. */
function listensOn(pid: number, port: number): boolean {
  const sockets = new Set(['tcp', 'tcp6'].flatMap((table) => listeningInodes(textOf(`/proc/net/${table}`), port)));
  return sockets.size > 0 && openFiles(pid).some((file) => sockets.has(file));
}

/** Parses lines of `sl local_address rem_address st … inode` with hexadecimal ports. */
function listeningInodes(table: string, port: number): string[] {
  return table.split('\n').flatMap((line) => {
    const [, local = '', , state, , , , , , inode] = line.trim().split(/\s+/);
    const isListening = state === LISTEN && Number.parseInt(local.split(':').at(-1)!, 16) === port;
    return isListening ? [`socket:[${inode}]`] : [];
  });
}

function openFiles(pid: number): string[] {
  const folder = `/proc/${pid}/fd`;
  try {
    return readdirSync(folder).flatMap((name) => {
      try {
        return [readlinkSync(join(folder, name))];
      } catch {
        // The file has been closed in the meantime.
        return [];
      }
    });
  } catch {
    return [];
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Earlier times are wrong, because tagferry did not exist yet. */
const EARLIEST_MS = Date.UTC(2026, 0, 1);

/** Checks that the clock is plausible and synchronised. The API check compares the clock with the platform's clock. */
export async function checkClock({ clock }: DoctorContext): Promise<CheckLine[]> {
  const nowMs = clock.wallMs();
  const utc = new Date(nowMs).toISOString().slice(0, 19).replace('T', ' ');
  if (nowMs < EARLIEST_MS) {
    const next =
      'Set the clock (`timedatectl set-ntp true` or `date -s`). TLS fails until then, because certificates are not valid yet.';
    return [failure('clock', `wrong time: ${utc} UTC`, next)];
  }
  const synchronised = existsSync('/run/systemd/timesync/synchronized') ? 'yes' : await ntpState();
  if (synchronised === 'no') {
    const next = 'Run `timedatectl set-ntp true`, or install chrony. Value timestamps depend on the clock.';
    return [warning('clock', `${utc} UTC, not synchronised`, next)];
  }
  const kept = synchronised === 'yes' ? ', synchronised' : '';
  return [ok('clock', `${utc} UTC${kept}`)];
}

async function ntpState(): Promise<'yes' | 'no' | undefined> {
  const shown = await outputOf('timedatectl', ['show', '--property=NTPSynchronized', '--value']);
  const state = shown?.trim();
  return state === 'yes' || state === 'no' ? state : undefined;
}

/** Checks certificates of listeners and sources. `network.tls` checks the platform certificate. */
export function checkCertificates({ clock, agent, settings }: DoctorContext): CheckLine[] {
  const nowMs = clock.wallMs();
  if (agent) {
    const inUse = agent.certificates ?? [];
    return inUse
      .filter(({ use }) => use !== 'platform')
      .map(({ use, expires }) => lineOf({ use, endsMs: Date.parse(expires) }, nowMs));
  }
  const files = { ops: settings.opsTlsCert, ingest: settings.ingestTlsCert, webhook: settings.webhookTlsCert };
  return Object.entries(files).flatMap(([use, file]) => (file === undefined ? [] : [fileLine(use, file, nowMs)]));
}

function fileLine(use: string, file: string, nowMs: number): CheckLine {
  try {
    const endsMs = pemEndsMs(readRegularFileSync(file).bytes);
    if (endsMs !== undefined) return lineOf({ use, endsMs }, nowMs);
    return failure(
      'certificates',
      `${file} does not contain a PEM certificate`,
      'Specify a PEM file with a certificate.',
    );
  } catch (error) {
    return failure(
      'certificates',
      `cannot read ${file} (${codeOf(error)})`,
      'Specify a PEM file that this user can read.',
    );
  }
}

function lineOf({ use, endsMs }: CertificateInUse, nowMs: number): CheckLine {
  const text = `${use} certificate ${expiryText(endsMs, nowMs)} (${new Date(endsMs).toISOString()})`;
  if (!endsSoon(endsMs, nowMs)) return ok('certificates', text);
  const next = use.startsWith('source ')
    ? 'Renew the ca and cert files of the source, or the certificate of its server, whichever expires first.'
    : `Renew the file specified by ${use.toUpperCase()}_TLS_CERT. The agent reloads it within ten seconds.`;
  return endsMs > nowMs ? warning('certificates', text, next) : failure('certificates', text, next);
}
