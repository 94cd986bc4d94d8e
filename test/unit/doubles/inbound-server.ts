import { systemClock } from '../../../src/base/clock.ts';
import {
  type InboundKind,
  type InboundLimits,
  type InboundOptions,
  InboundServer,
} from '../../../src/base/inbound/inbound-server.ts';
import { silentLogger } from '../../../src/base/logger.ts';

/** Options of a listener on a free port of 127.0.0.1. */
export interface InboundPlace extends Partial<Pick<InboundOptions, 'address' | 'tls' | 'clock' | 'log'>> {
  limits?: Partial<InboundLimits>;
}

/** Returns a listener that responds with 503 until a part handles its requests. */
export function inboundServer(kind: InboundKind, { limits, ...options }: InboundPlace = {}): InboundServer {
  return new InboundServer({
    ...kind,
    address: { host: '127.0.0.1', port: 0 },
    clock: systemClock,
    log: silentLogger(),
    serve: async (_request, response) => void response.writeHead(503).end(),
    ...options,
    limits: { ...kind.limits, ...limits },
  });
}

/** Returns the port of a listener that is listening on TCP. */
export function portOf(server: InboundServer): number {
  return Number(server.address!.split(':').at(-1));
}
