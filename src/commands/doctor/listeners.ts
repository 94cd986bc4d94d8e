import { createServer } from 'node:net';
import { codeOf, messageOf } from '../../base/errors.ts';
import type { ListenAddress } from '../../base/listen.ts';
import { formatListenAddress } from '../../base/listen-address.ts';
import { daemonProcesses, listensOn } from './daemon-process.ts';
import { type CheckLine, type Consultation, failure, ok } from './finding.ts';

/** Whether the daemon could listen where it is told to. While one runs the addresses are its own, and there is nothing to try. */
export async function checkListeners({
  settings,
  daemon,
  daemonTrouble,
  isService,
}: Consultation): Promise<CheckLine[]> {
  if (daemon || daemonTrouble !== undefined) return [];
  const lines: CheckLine[] = [];
  const running = await daemonProcesses(settings.stateDir);
  for (const [key, address] of [
    ['INGEST_LISTEN', settings.ingestListen],
    ['WEBHOOK_LISTEN', settings.webhookListen],
    ['OPS_LISTEN', settings.opsListen],
  ] as const) {
    if (address && 'port' in address) lines.push(await checkOne(key, address, isService, running));
  }
  return lines;
}

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
  if (holder !== undefined) return ok('listener', `${key} ${place} is held by tagferry itself (process ${holder})`);
  const next: Readonly<Record<string, string>> = {
    EADDRINUSE: `See who has it: \`ss -ltnp 'sport = :${address.port}'\`, or set ${key} to another port.`,
    EACCES: isService
      ? `Ports below 1024 want a capability: set ${key} to a higher one, or see install.md, CAP_NET_BIND_SERVICE.`
      : `Ports below 1024 are not for this user: set ${key} to a higher one.`,
    EADDRNOTAVAIL: `This machine has no such address: set ${key} to one of \`ip address\`.`,
  };
  return failure(
    'listener',
    `${key} cannot listen on ${place} (${trouble})`,
    next[trouble] ?? `Set ${key} to another address.`,
  );
}

function listenTrouble({ host, port }: { host: string; port: number }): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error) => resolve(codeOf(error) ?? messageOf(error)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
