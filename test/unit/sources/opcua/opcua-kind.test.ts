import { describe, expect, it } from 'vitest';
import { check } from '../../config/folder.ts';

const EXAMPLE = '"nsu=urn:example:line1;s=Line1.Flow" or "ns=2;s=Line1.Flow"';

/** Returns the problem of one value or source, without its location. */
function problemOf(value: string, source = 'opcua: "opc.tcp://h"'): string | undefined {
  const tags = `sources: { cell: { ${source} } }\ntags: { T: { asset: 1, values: { v: { from: cell, ${value} } } } }\n`;
  return check({ 'tags.yaml': tags }).lines[0]?.replace(/^\S+ /, '');
}

describe('OPC UA source', () => {
  it('accepts an address with a path', () => {
    expect(problemOf('node: "i=2258"', 'opcua: "opc.tcp://10.0.0.5:4840/UA/Line1"')).toBeUndefined();
  });

  it.each([
    ['opcua: "http://h"', 'has the unsupported scheme http://'],
    ['opcua: "opc.tcp://reader@h"', 'the address contains a user name, move it to username:'],
    ['opcua: "opc.tcp://h", password_file: p', 'password_file requires a user name, add username:'],
    ['opcua: "opc.tcp://h", user_key: k', 'user_key requires user_cert, set user_cert to the path of its PEM file'],
    ['opcua: "opc.tcp://h", key: k', 'key requires cert, set cert to the path of its PEM file'],
  ])('with %s has the problem: %s', (source, problem) => {
    expect(problemOf('node: "i=2258"', source)).toContain(problem);
  });
});

describe('OPC UA source value', () => {
  it.each(['ns=2;s=Line1.Flow', 'nsu=http://b/?x%3By;s=Line;1', 'nsu=urn:a;i=7', 'i=2258', 'ns=3;b=AQID'])(
    'accepts node %s',
    (node) => {
      expect(problemOf(`node: "${node}"`)).toBeUndefined();
    },
  );

  it.each(['ns=x;s=1', 'nsu=urn:a;x=1', 'nsu=;s=1', 'svr=1;s=1', 'Line1/Flow'])('rejects node %s', (node) => {
    expect(problemOf(`node: "${node}"`)).toBe(`node "${node}" is not a node ID, use a value such as ${EXAMPLE}`);
  });

  it('accepts an array element and a structure member', () => {
    expect(problemOf('node: "ns=2;s=Motors", index: 3, member: Axes.1.Position')).toBeUndefined();
  });

  it.each(['"A..B"', '".A"'])('rejects member %s', (member) => {
    expect(problemOf(`node: "ns=2;s=Motor", member: ${member}`)).toBe(
      `${member} is not the name of a member, use a value such as Speed or Axes.0.Position`,
    );
  });
});
