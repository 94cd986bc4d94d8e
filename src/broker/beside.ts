import { Broker, type BrokerOptions } from './broker.ts';

/**
 * A client of its own, beside the agent's: under another id and outside of its group, with a session that ends with it, and with
 * QoS 0, so that whoever looks takes nothing from the agent's session and confirms nothing for it, nor says of the agent that it is
 * there or goes.
 */
export function brokerBeside({ spec, ...options }: Omit<BrokerOptions, 'clientId'>): Broker {
  const { share: _, presence: __, ...rest } = spec;
  const clientId = `tagferry-look-${Math.floor(options.clock.random() * 1e9).toString(36)}`;
  return new Broker({ ...options, clientId, spec: { ...rest, qos: 0, sessionExpiryMs: 0, clientId } });
}
