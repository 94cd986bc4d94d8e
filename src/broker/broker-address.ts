import { BrokerError } from './broker-error.ts';

/** An MQTT address taken apart: `mqtt://user:password@host:1883`, `mqtts://` for TLS. */
export interface BrokerAddress {
  protocol: 'mqtt' | 'mqtts';
  host: string;
  port: number;
  username?: string;
  password?: string;
}

/** Throws `broker.address`, which does not repeat the address: it may hold a password. */
export function readBrokerAddress(name: string, url: string): BrokerAddress {
  const parsed = URL.parse(url);
  const protocol = parsed?.protocol === 'mqtts:' ? 'mqtts' : 'mqtt';
  if (!parsed || !['mqtt:', 'mqtts:'].includes(parsed.protocol) || parsed.hostname === '') {
    throw new BrokerError(`the address of the broker ${name} cannot be read`, {
      code: 'broker.address',
      hint: 'Write it as mqtt://host:1883 or mqtts://host:8883.',
    });
  }
  return {
    protocol,
    // The brackets of an IPv6 address belong to the URL.
    host: parsed.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: parsed.port === '' ? (protocol === 'mqtts' ? 8883 : 1883) : Number(parsed.port),
    ...(parsed.username === '' ? {} : { username: decodeURIComponent(parsed.username) }),
    ...(parsed.password === '' ? {} : { password: decodeURIComponent(parsed.password) }),
  };
}
