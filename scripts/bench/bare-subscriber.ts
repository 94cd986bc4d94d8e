/** MQTT.js as it comes: subscribes, confirms at once, stores nothing. `node bare-subscriber.ts PORT FILTER`. */
import { connect } from 'mqtt';

const [port, filter] = process.argv.slice(2) as [string, string];
const client = connect(`mqtt://127.0.0.1:${port}`, { clean: false, clientId: 'bare', protocolVersion: 5 });
client.on('message', () => {});
client.on('connect', () => client.subscribe(filter, { qos: 1 }));
