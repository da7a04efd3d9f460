"""Graphs between samples, and precisions: opened, written to stores, and put into an order with neighbours near."""
