/** An archive of text files in the ustar format (POSIX.1-1988), written without a program or a shell. */
export interface TarEntry {
  /** At most 99 bytes; folders by slashes. */
  name: string;
  text: string;
}

const BLOCK = 512;

/** The whole archive. `atSeconds` is the time that every entry gets, in seconds since 1970. */
export function writeTar(entries: readonly TarEntry[], atSeconds: number): Buffer {
  const blocks: Buffer[] = [];
  for (const { name, text } of entries) {
    const body = Buffer.from(text, 'utf8');
    blocks.push(header(name, body.length, atSeconds), body, Buffer.alloc((BLOCK - (body.length % BLOCK)) % BLOCK));
  }
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]);
}

function header(name: string, size: number, atSeconds: number): Buffer {
  if (Buffer.byteLength(name) > 99) throw new RangeError(`the name ${name} is too long for an archive`);
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, width: number) =>
    block.write(
      `${Math.max(0, Math.floor(value))
        .toString(8)
        .padStart(width - 1, '0')}\0`,
      at,
      'latin1',
    );
  block.write(name, 0, 'utf8');
  octal(0o600, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(atSeconds, 136, 12);
  block.write('        ', 148, 'latin1');
  block.write('0', 156, 'latin1');
  block.write('ustar\x0000', 257, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}
