import { BrokerError } from './broker-error.ts';

type BrokerProtocol = 'mqtt' | 'mqtts' | 'ws' | 'wss';

/** An MQTT address taken apart: `mqtt://user:password@host:1883`, `mqtts://` for TLS, `ws://host/path`, `wss://`. */
export interface BrokerAddress {
  protocol: BrokerProtocol;
  host: string;
  port: number;
  /** Of WebSockets, with what is searched for. */
  path: string;
  username?: string;
  password?: string;
}

const PORTS: Readonly<Record<BrokerProtocol, number>> = { mqtt: 1883, mqtts: 8883, ws: 80, wss: 443 };

/** Throws `broker.address`, which does not repeat the address: it may hold a password. */
export function readBrokerAddress(name: string, url: string): BrokerAddress {
  const parsed = URL.parse(url);
  const protocol = parsed?.protocol.slice(0, -1) as BrokerProtocol | undefined;
  if (!parsed || protocol === undefined || !Object.hasOwn(PORTS, protocol) || parsed.hostname === '') {
    throw new BrokerError(`the address of the broker ${name} cannot be read`, {
      code: 'broker.address',
      hint: 'Write it as mqtt://host:1883, mqtts://host:8883, ws://host/path or wss://host/path.',
    });
  }
  return {
    protocol,
    // The brackets of an IPv6 address belong to the URL.
    host: parsed.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: parsed.port === '' ? PORTS[protocol] : Number(parsed.port),
    path: parsed.pathname + parsed.search,
    ...(parsed.username === '' ? {} : { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password === '' ? {} : { password: decodeURIComponent(parsed.password) }),
  };
}
