"""Triggers: the rules that say when a schedule fires. Pure: instants in, instants out."""
