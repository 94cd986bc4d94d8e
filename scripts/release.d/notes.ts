import { join } from 'node:path';
import { readChangelog } from '../changelog.ts';

/**
 * `notes.ts ROOT VERSION` prints the release notes from CHANGELOG.md with installation steps. Fails if the section has
 * no date or the version differs from package.json.
 */
const [root, version] = process.argv.slice(2) as [string, string];
const { default: manifest } = (await import(join(root, 'package.json'), { with: { type: 'json' } })) as {
  default: { version: string };
};
const release = readChangelog(root).find((one) => one.version === version);
const missing = [
  ...(manifest.version === version ? [] : [`package.json has version ${manifest.version}`]),
  ...(release === undefined ? [`CHANGELOG.md says nothing of ${version}`] : []),
  ...(release !== undefined && release.date === undefined
    ? [`CHANGELOG.md calls ${version} unreleased: give it its date`]
    : []),
];
if (release === undefined || missing.length > 0) {
  for (const line of missing) console.error(`release: ${line}`);
  process.exit(1);
}
console.log(
  [
    `# tagferry ${version} (${release.date})`,
    '',
    ...(release.words === '' ? [] : [release.words, '']),
    ...release.changes.map((change) => `- ${change}`),
    '',
    '## What is here',
    '',
    '- `tagferry_*.deb`: Debian 11 and later, amd64 and arm64; `apt/` is a repository of them (docs/guide/install.md)',
    '- `tagferry_*_oci.tar`: the container image (docs/guide/container.md)',
    '- `*.cdx.json`: what is inside, in CycloneDX; `LICENCES.txt`: the licences of it',
    '- `SHA256SUMS`, signed: `gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --check SHA256SUMS`',
  ].join('\n'),
);
