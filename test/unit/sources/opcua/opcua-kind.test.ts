import { describe, expect, it } from 'vitest';
import { check } from '../../config/folder.ts';

const EXAMPLE = '"nsu=urn:example:line1;s=Line1.Flow" or "ns=2;s=Line1.Flow"';

/** Returns the problem of one value, without its place. */
function problemOf(members: string): string | undefined {
  const tags = `sources: { cell: { opcua: "opc.tcp://h" } }\ntags: { T: { asset: 1, values: { v: { from: cell, ${members} } } } }\n`;
  return check({ 'tags.yaml': tags }).lines[0]?.replace(/^\S+ /, '');
}

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
