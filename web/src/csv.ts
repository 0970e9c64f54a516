// saveCsv saves rows as a file. A text that a spreadsheet would evaluate as a formula begins with a quote.
export function saveCsv(name: string, rows: object[]) {
  const columns = [...new Set(rows.flatMap((r) => Object.keys(r)))];
  const cell = (value: unknown) => {
    let text = value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns, ...rows.map((r) => columns.map((c) => (r as Record<string, unknown>)[c]))].map((line) => line.map(cell).join(","));
  saveBlob(name, new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
}

// saveBlob saves content as a file of the user's.
export function saveBlob(name: string, blob: Blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
