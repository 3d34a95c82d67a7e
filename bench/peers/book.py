"""All that was measured, round by round: a JSON file that is whole after every measurement, and questions to it.

A row is one measurement: its round, peer, work, and either values or why there are none. A run that was interrupted goes
on where it stopped (`RESUME=1`), because what stands in the book is not measured again.
"""

import json
import os
import statistics


def _short(value):
    return float("%.6g" % value) if isinstance(value, float) else value


class Book:
    def __init__(self, path, resume=False):
        self.path = path
        self.about, self.rows = {}, []
        if resume and os.path.exists(path):
            with open(path) as source:
                kept = json.load(source)
            self.about, self.rows = kept["about"], kept["rows"]

    def save(self):
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        with open(self.path + ".new", "w") as out:
            out.write('{"about": %s,\n"rows": [\n%s\n]}\n' % (json.dumps(self.about, ensure_ascii=False, indent=1), rows))
        os.replace(self.path + ".new", self.path)

    def has(self, number, peer, work):
        return any(row["round"] == number and row["peer"] == peer and row["work"] == work for row in self.rows)

    def add(self, number, peer, work, values=None, failed=None):
        row = {"round": number, "peer": peer, "work": work}
        row.update({name: _short(value) for name, value in (values or {}).items()})
        if failed:
            row["failed"] = failed
        self.rows.append(row)
        self.save()

    # ---- questions ----

    def values(self, peer, work, field):
        """One for each round that has it: {round: value}."""
        return {row["round"]: row[field] for row in self.rows
                if row["peer"] == peer and row["work"] == work and row.get(field) is not None}

    def rounds(self, peer):
        """How many there are, as words: not all works need have as many."""
        counts = {}
        for row in self.rows:
            if row["peer"] == peer and not row.get("failed"):
                counts[row["work"]] = counts.get(row["work"], 0) + 1
        least, most = (min(counts.values()), max(counts.values())) if counts else (0, 0)
        return "%d to %d rounds" % (least, most) if least < most else "1 round" if most == 1 else "%d rounds" % most

    def median(self, peer, work, field):
        found = list(self.values(peer, work, field).values())
        return statistics.median(found) if found else None

    def most(self, peer, field, works):
        found = [value for work in works for value in self.values(peer, work, field).values()]
        return max(found) if found else None

    def ratios(self, work, field, one, other, other_works=None):
        """Of one peer to another within the same round, sorted. Of several works of the other the best counts."""
        ours = self.values(one, work, field)
        best = {}
        for each in other_works or [work]:
            for number, value in self.values(other, each, field).items():
                best[number] = max(best.get(number, value), value)
        return sorted(ours[number] / best[number] for number in ours if best.get(number))

    def has_any(self, peer, work=None):
        return any(row["peer"] == peer and "failed" not in row and work in (None, row["work"]) for row in self.rows)

    def failures(self):
        return [row for row in self.rows if row.get("failed") or row.get("failures")]
