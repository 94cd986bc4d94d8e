import { createServer, type Server } from 'node:net';

/** Returns a Modbus device that responds to each read immediately. It is not listening yet. */
export function modbusDevice(): Server {
  return createServer((socket) => {
    socket.setNoDelay();
    socket.on('error', () => {});
    socket.on('data', (request) => {
      const length = request.readUInt16BE(10) * 2;
      const answer = Buffer.alloc(9 + length, 7);
      request.copy(answer, 0, 0, 4);
      answer.writeUInt16BE(3 + length, 4);
      answer[6] = request[6]!;
      answer[7] = request[7]!;
      answer[8] = length;
      socket.write(answer);
    });
  });
}
