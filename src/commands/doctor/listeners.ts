import { createServer } from 'node:net';
import { codeOf, messageOf } from '../../base/errors.ts';
import { type ListenAddress, listenHint } from '../../base/listen.ts';
import { formatListenAddress } from '../../base/listen-address.ts';
import { daemonProcesses, listensOn } from './daemon-process.ts';
import { type CheckLine, type Consultation, failure, ok } from './finding.ts';

/** Whether the daemon could listen where it is told to. While one runs the addresses are its own, and there is nothing to try. */
export async function checkListeners({
  settings,
  daemon,
  daemonTrouble,
  isService,
  service,
}: Consultation): Promise<CheckLine[]> {
  if (daemon || daemonTrouble !== undefined) return [];
  const lines: CheckLine[] = [];
  const running = daemonProcesses(settings.stateDir, service?.unit.MainPID);
  for (const [key, address] of [
    ['INGEST_LISTEN', settings.ingestListen],
    ['WEBHOOK_LISTEN', settings.webhookListen],
    ['OPS_LISTEN', settings.opsListen],
  ] as const) {
    if (address && 'port' in address) lines.push(await checkOne(key, address, isService, running));
  }
  return lines;
}

/** The lines that the service view reported, except for ports that the running service has, of which only root knows. */
export function withOwnPorts(seen: readonly CheckLine[], own: readonly CheckLine[]): CheckLine[] {
  return seen.map((line, at) => (own[at]?.message.includes(HELD) ? own[at] : line));
}

const HELD = 'is held by tagferry itself';

async function checkOne(
  key: string,
  address: Extract<ListenAddress, { port: number }>,
  isService: boolean,
  running: readonly number[],
): Promise<CheckLine> {
  const place = formatListenAddress(address);
  const trouble = await listenTrouble(address);
  if (trouble === undefined) return ok('listener', `${key} ${place} is free`);
  const holder = trouble === 'EADDRINUSE' ? running.find((pid) => listensOn(pid, address.port)) : undefined;
  // It waits for its disk, or its control socket is gone: what it has it need not get.
  if (holder !== undefined) return ok('listener', `${key} ${place} ${HELD} (process ${holder})`);
  const next =
    trouble === 'EACCES' && isService
      ? `Set ${key} to a port above 1023, or see install.md, CAP_NET_BIND_SERVICE.`
      : listenHint(trouble, key);
  return failure('listener', `${key} cannot listen on ${place} (${trouble})`, next);
}

function listenTrouble({ host, port }: { host: string; port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve(codeOf(error) ?? messageOf(error)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
