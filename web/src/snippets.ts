// Programs that make a call. The credential stands in a variable, so that no secret is copied.
export const languages = { curl: "curl", javascript: "JavaScript", python: "Python" } as const;
export type Language = keyof typeof languages;

// asProgram returns a program that makes a call: it sends body, which is JSON, to address and prints the answer as it comes.
export function asProgram(language: Language, address: string, body: string, credential: boolean): string {
  return { curl, javascript, python }[language](address, body, credential);
}

function curl(address: string, body: string, credential: boolean): string {
  const quote = (s: string) => `'${s.replaceAll("'", `'\\''`)}'`;
  const header = credential ? ` -H "Authorization: Bearer $STOA_TOKEN"` : "";
  return `curl -N ${quote(address)}${header} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quote(body)}`;
}

function javascript(address: string, body: string, credential: boolean): string {
  // In a program the member __proto__ of an object would be another thing than in JSON.
  const value = body.includes('"__proto__"') ? JSON.stringify(body) : `JSON.stringify(${JSON.stringify(JSON.parse(body), null, 2).replaceAll("\n", "\n  ")})`;
  const header = credential ? '"Authorization": `Bearer ${process.env.STOA_TOKEN}`, ' : "";
  return `// node call.mjs
const response = await fetch(${JSON.stringify(address)}, {
  method: "POST",
  headers: {${header}"Content-Type": "application/json"},
  body: ${value},
});
if (!response.ok) throw new Error(await response.text());
for await (const text of response.body.pipeThrough(new TextDecoderStream())) process.stdout.write(text);
`;
}

// A string of JSON is a string of Python as well.
function python(address: string, body: string, credential: boolean): string {
  const header = credential ? `"Authorization": "Bearer " + os.environ["STOA_TOKEN"], ` : "";
  return `${credential ? "import os\n" : ""}import urllib.request

request = urllib.request.Request(
    ${JSON.stringify(address)},
    data=${JSON.stringify(body)}.encode(),
    headers={${header}"Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as response:
    for line in response:
        print(line.decode(), end="", flush=True)
`;
}
