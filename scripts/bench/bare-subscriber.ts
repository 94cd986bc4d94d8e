/**
 * MQTT.js as it comes: subscribes, parses each message as JSON and takes its value and time, confirms at once, stores nothing. Tells its
 * parent when it has subscribed, and then how many it has taken. `bare-subscriber.ts PORT FILTER…`.
 */
import { connect } from 'mqtt';

const [port, ...filters] = process.argv.slice(2) as [string, ...string[]];
const client = connect(`mqtt://127.0.0.1:${port}`, {
  clean: false,
  clientId: 'bare',
  protocolVersion: 5,
  properties: { sessionExpiryInterval: 3_600 },
});
let taken = 0;
let sum = 0;
client.on('message', (_, payload) => {
  const { v, t } = JSON.parse(payload.toString()) as { v: number; t: number };
  sum += v + t;
  taken++;
});
client.on('connect', () => client.subscribe(filters, { qos: 1 }, () => process.send!('subscribed')));
process.on('message', () => process.send!(Number.isFinite(sum) ? taken : 0));
