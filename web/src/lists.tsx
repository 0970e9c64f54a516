// What the lists of several screens share.
import { Button, Group, Table } from "@mantine/core";
import type { ReactNode } from "react";

// Rows is a table that scrolls by itself where the page is narrow. A keyboard can scroll it too.
export function Rows({ label, head, children }: { label: string; head: ReactNode[]; children: ReactNode }) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={label}>
      <Table verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>
            {head.map((h, i) => (
              <Table.Th key={i}>{h}</Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>{children}</Table.Tbody>
      </Table>
    </div>
  );
}

// Pages leads to the next page and back to the first.
export function Pages({ cursor, next, onChange }: { cursor: string | undefined; next: string | undefined; onChange: (cursor: string | undefined) => void }) {
  if (!cursor && !next) return null;
  return (
    <Group gap="xs">
      {cursor && (
        <Button variant="default" size="xs" onClick={() => onChange(undefined)}>
          First page
        </Button>
      )}
      {next && (
        <Button variant="default" size="xs" onClick={() => onChange(next)}>
          Next page
        </Button>
      )}
    </Group>
  );
}

export const hiddenHead = (text: string) => <span className="hidden">{text}</span>;
